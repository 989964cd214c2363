"""The words of the field as immutable values: jobs, samples, resources, plans, worlds.

Standard library only, so that collectors and launchers can import this package beside a
job. Nothing here reads a clock, a file or a socket.
"""
