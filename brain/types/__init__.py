"""Immutable values that all of Brain shares: jobs, plans, worlds, resources, samples.

Standard library only, so that collectors and launchers can import this package beside a
job. Nothing here reads a clock, a file or a socket.
"""
