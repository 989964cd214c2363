"""A replica's needs beside accelerators: processor, memory, and the device's own memory.

cpu          percentiles of recent use, with hysteresis; the need of a starved loader
host_memory  leaks and the time they leave; the next limit after a replica ran out
gpu_memory   F + c m, from peaks and from runs that ran out
"""
