"""One worker that runs.

    process    its start, its exit, and its ports
    control    the file that it and its agent share
    output     where its streams go
    sessions   the lines to workers that can go over into another world
    evidence   this machine's signs of its end
    failures   its error file
    reaper     no worker outlives its agent

``reaper`` is also a program of its own, run by path: it may import nothing but the standard
library.
"""
