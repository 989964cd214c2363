"""The agent's side of ``--network-check``: ``script`` runs under the workers' interpreter.

``values.network_check`` decides as a pure function; ``coordinator.network_checks`` requests the
measurements and uses the decision.
"""
