"""One replica as a pod: pure functions from desired state to manifests, and back from pods.

No module here talks to a server. ``manifest`` turns an order into a pod, ``sight`` turns a pod into
a replica.
"""
