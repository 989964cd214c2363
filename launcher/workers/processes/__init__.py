"""One running worker.

    process    its start, its exit, and its ports
    control    the file that the worker and its agent share
    output     destinations of its streams
    sessions   the connections to workers that can change worlds in process
    evidence   signs on this machine that show why it ended
    failures   its error file
    reaper     ends workers whose agent died

``reaper`` is also run as a program, by its path, so it may import only the standard library.
"""
