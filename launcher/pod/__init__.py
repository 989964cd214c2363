"""The agent of a replica that is a pod: ``python -m launcher.pod``, in front of its command.

Unlike an agent on one machine, it reads the addresses of the other agents from a file that the
scaler updates, and writes its end to a file that the cluster reads.
"""
