"""The agent of a replica that is a pod. ``python -m launcher.pod`` precedes the pod's own command.

Unlike an agent on one machine, this agent reads the address at which it finds the other agents from
a file that the scaler updates. When it ends, it writes how it ended to a file that the cluster
reads.
"""
