"""Find the worker that failed first, the reason, and the consequence.

Pure: standard library and ``brain`` words only.

    signs     what an agent could find out when a worker of its ended (a value)
    kinds     one worker's signs -> the kind of its failure, with the words that tell so
    first     all failures of a world -> the one that came first, as a ``Diagnosis``
    policy    a diagnosis and those before -> restart in place, leave a node, or stop the job
    slowness  own time per rank -> nodes that hold the others up, and whether leaving one pays

Files and control groups are read in ``launcher.workers.processes.evidence``.
"""
