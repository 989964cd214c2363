"""The service. It builds the stores, the loop and the app from the settings, runs the turns, and
shuts down.

``python -m brain.service --home H [--<setting> VALUE …]`` is the command that ``brain up``
supervises. No module imports this package.
"""
