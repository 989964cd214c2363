"""Jobs of Kubeflow and JobSet, which Brain scales through the same interface as its own jobs.

    foreign       the owner's annotations: bounds, and the permission to resize
    training      the facts about one job, and the interface that each kind of jobs implements
    kubeflow      PyTorchJobs as Kubeflow's operator reads them, and reasons not to resize them
    jobset        JobSets, whose workers are one elastic indexed Job
    record        the replicas that were asked for, kept in Brain's Secret beside the job
    job_secrets   the Secret beside each job, with its record and its token
    sources       objects of the cluster, from stores that follow the API server
    backend       implements the scaler's interface ``JobBackend``
    worlds        a coordinator's reports, derived from pods
    mirror        copies each job to Brain, and reports the job's worlds

The objects belong to other owners, so Brain adds no annotation, label or finalizer. An adapter
writes only the size, through the objects' own API (the scale subresource, ``parallelism``,
``suspend``), and only if the object's owner allows it by annotation. No adapter has been tested
with a real controller of Kubeflow or JobSet yet.
"""
