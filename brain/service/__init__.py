"""The composition root: settings -> stores -> cycle -> app; the tick; graceful shutdown.

``python -m brain.service --home H [--<setting> VALUE …]`` is what ``brain up`` supervises. Nobody
imports this package.
"""
