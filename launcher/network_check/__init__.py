"""``--network-check``: nodes are tried in pairs before the first world, and what fails is left out.

``rules`` decides (pure), ``measuring`` runs ``script.py`` under the workers' interpreter on an
agent, ``checking`` is the coordinator's side.
"""
