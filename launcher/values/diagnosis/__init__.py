"""Diagnosis of a failed world: the worker that failed first, the cause, and the consequence.

Pure; imports only the standard library and ``brain.types``.

    signs     what an agent found when one of its workers ended (a value)
    kinds     one worker's signs -> the kind of its failure, with the text that shows it
    first     all failures of a world -> the one that came first, as a ``Diagnosis``
    policy    a diagnosis and earlier ones -> restart in place, leave out a node, or stop the job
    slowness  step times per rank -> nodes that delay the others, and if leaving one out pays

Files and control groups are read in ``launcher.workers.processes.evidence``.
"""
