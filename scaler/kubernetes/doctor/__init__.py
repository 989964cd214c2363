"""Finds what the operator lacks in a cluster: ``brain doctor --cluster``.

Each finding has a remedy. The permissions are those in ``kinds.rights``, from which the roles under
``deploy/kustomize`` are generated.
"""
