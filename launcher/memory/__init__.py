"""The agent's side of the memory checkpoint: shared memory that outlives workers, and what brings
it to storage. Workers write into it (``launcher/inject/shim.py``, ``launcher/checkpoint.py``).
"""
