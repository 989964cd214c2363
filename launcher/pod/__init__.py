"""The agent of a replica that is a pod. ``python -m launcher.pod`` precedes the pod's own command.

Unlike an agent on one machine, it reads the addresses of other agents from a file that the scaler
updates, and writes how it ended to a file that the cluster reads.
"""
