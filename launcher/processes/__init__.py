"""The parts of ``launcher.workers``: a worker's environment, control file, output, leash, failure.

``leash`` is also a program of its own, run by path: it may import nothing but the standard
library.
"""
