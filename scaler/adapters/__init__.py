"""Jobs of other projects, behind the same port as Brain's own jobs.

    foreign       annotations: bounds, and the right to act
    training      the facts about a job of any kind, and the interface of a kind
    kubeflow      PyTorchJobs as Kubeflow's operator reads them, and reasons not to resize them
    jobset        JobSets, whose workers are one elastic indexed Job
    record        the replicas that were asked for, kept in Brain's Secret beside the job
    job_secrets   the Secret beside each job, with its record and its token
    sources       objects of the cluster, from reflected stores or by requests
    backend       the ``JobBackend``
    worlds        a coordinator's reports, derived from pods
    mirror        copies each job to Brain, and reports the job's worlds

The objects belong to other owners, so Brain adds no annotation, label or finalizer. An adapter
writes only the size, through the objects' own API (the scale subresource, ``parallelism``,
``suspend``), and only if the object's owner allows it by annotation. No adapter has been tested
with the real project yet.
"""
