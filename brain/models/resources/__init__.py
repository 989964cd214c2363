"""A replica's needs other than accelerators: CPU, host memory and device memory.

cpu          percentiles of recent use, with hysteresis; the need of a starved loader
host_memory  leaks and the time until memory runs out; the limit after a replica ran out of memory
gpu_memory   peak memory of a device as a function of the local batch size
"""
