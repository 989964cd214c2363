"""One running worker.

    process    its start, its exit, and its ports
    control    the file that the worker and its agent share
    output     destinations of its streams
    sessions   the connections to workers that can change worlds in process
    evidence   signs on this machine of why it ended
    failures   its error file
    reaper     ends workers whose agent died

``reaper`` is also a program of its own, run by path: it may import nothing but the standard
library.
"""
