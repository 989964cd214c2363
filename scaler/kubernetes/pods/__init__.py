"""One replica as a pod: pure functions from desired state to manifests, and from pods to replicas.

No module of this package accesses a server. ``manifest`` turns an order into a pod, ``sight`` turns
a pod into a replica.
"""
