"""Jobs of other projects, behind the same port as ours.

    foreign       annotations: bounds, and the right to act
    training      a job of any kind, its document, and the demands on a kind
    kubeflow      PyTorchJobs as Kubeflow's operator reads them, and reasons not to resize them
    jobset        JobSets, whose workers are one elastic indexed Job
    record        the replicas that were asked for, kept in a Secret of ours beside the job
    sources       objects of the cluster: reflected, or asked for
    backend       the ``JobBackend``
    worlds        a coordinator's reports, derived from pods
    mirror        a copy of each job in Brain, and those worlds

The objects are other people's, so they get no annotation, label or finalizer of ours. An adapter
writes the size alone, through the objects' own API (the scale subresource, ``parallelism``,
``suspend``), and only where the object's owner allows that by annotation. No adapter here has met
the real project yet.
"""
