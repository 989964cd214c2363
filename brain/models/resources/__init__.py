"""A replica's needs beside accelerators: processor, memory, and the device's own memory.

cpu          percentiles of recent use, with hysteresis; what a starved loader would need
host_memory  leaks and how long they leave; what to give after the system ran out
gpu_memory   F + c m out of peaks and of runs that ran out
"""
