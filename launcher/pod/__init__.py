"""The agent of a replica that is a pod: ``python -m launcher.pod``, in front of its command.

Beside what an agent knows on one machine it is told where the others are, by a file that the
scaler keeps current, and leaves its end where the cluster finds it.
"""
