"""Python imports this before any script; each worker says its rank."""

import os

if "RANK" in os.environ:
    os.write(1, f"site of rank {os.environ['RANK']}\n".encode())
