"""The agent of a replica that is a pod: ``python -m launcher.pod``, in front of its command.

In addition to an agent on one machine, it gets the addresses of the others from a file that the
scaler updates, and writes its end to a place where the cluster finds it.
"""
