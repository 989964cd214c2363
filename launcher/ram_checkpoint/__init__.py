"""The agent's side of RAM checkpoints: shared memory that outlives workers, and its copy to
storage.

Workers write into it (``launcher/inject/shim.py``, ``launcher/checkpoint.py``).

agent           starts RAM checkpoints, tracks saves ahead of storage, and shares parts
shared_memory   the agent's directory of shared memory, and its flusher
flusher         a program that writes the files in that directory to storage
slots           one file on its way to storage
storage         steps on their way to storage
sharing         parts of steps that travel between agents
"""
