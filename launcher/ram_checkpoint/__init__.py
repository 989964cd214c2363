"""The agent's side of RAM checkpoints: shared memory that outlives workers, and its copy to
storage.

Workers write into the shared memory (``launcher/inject/shim.py``, ``launcher/checkpoint/``).

agent           starts RAM checkpoints, tracks saves that are not on storage yet, shares parts
shared_memory   the agent's directory of shared memory, and its flusher
flusher         a program that writes the files in that directory to storage
slots           one file that is being written from memory to storage
storage         steps that are being written from memory to storage
sharing         parts of steps that agents send to each other
"""
