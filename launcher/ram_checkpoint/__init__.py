"""The agent's side of RAM checkpoints: shared memory that outlives workers, and its way to storage.

Workers write into it (``launcher/inject/shim.py``, ``launcher/checkpoint.py``).

agent           when it begins, what waits for storage, who shares
shared_memory   the agent's directory, and its flusher
flusher         a program that makes durable what appears there
slots           one file on its way to storage
storage         steps on their way to storage
sharing         parts of steps that travel between agents
"""
