"""The composition root: settings -> stores -> cycle -> app; the tick; graceful shutdown.

``python -m brain.service --home H [--<setting> VALUE …]`` is the command that ``brain up``
supervises. No module imports this package.
"""
