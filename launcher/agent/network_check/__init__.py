"""The agent's side of ``--network-check``: ``script`` runs under the workers' interpreter.

``coordinator.network_checks`` requests the measurements. ``values.network_check`` judges them with
pure functions, and ``coordinator.network_checks`` acts on the result.
"""
