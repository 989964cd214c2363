"""Finds what the operator lacks in a cluster: ``brain doctor --cluster``.

Each finding has a remedy. Rights come from ``kinds.rights``, the source of the roles under
``deploy/kustomize``.
"""
