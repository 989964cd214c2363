"""Find what a cluster lacks for the operator, each with the remedy, for ``brain doctor --cluster``.

Rights come from ``kinds.rights``, of which the roles under ``deploy/kustomize`` are made, too.
"""
