"""Builds the pod of one replica, and reads a replica from its pod.

All functions are pure: no module of this package accesses a server. ``manifest`` turns an order
into a pod, ``sight`` turns a pod into a replica.
"""
