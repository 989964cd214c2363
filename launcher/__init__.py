"""``brain-run``: a torchrun superset whose worlds change in seconds.

Agents need ``httpx2`` and ``msgspec`` alone, never torch, and may run under another interpreter than the
workers they start. What runs inside a worker (``inject/``) is standard library, CPython 3.8 on.
"""
