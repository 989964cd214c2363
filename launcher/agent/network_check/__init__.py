"""The agent's side of ``--network-check``: ``script`` runs under the workers' interpreter.

``values.network_check`` decides (pure); ``coordinator.network_checks`` asks and concludes.
"""
