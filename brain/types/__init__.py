"""Immutable values shared by all of Brain: jobs, plans, worlds, resources, samples.

This package uses only the standard library, so that collectors and launchers can import it next to
a job. It reads no clock, file or socket.
"""
