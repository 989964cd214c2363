"""What a cluster lacks for our operator, each with the remedy; ``brain doctor --cluster`` shows it.

Rights come from ``kinds.rights``, of which the roles under ``deploy/kustomize`` are made, too.
"""
