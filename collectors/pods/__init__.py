"""Measure jobs from a cluster's API: nodes, pods, how pods end, what they use, their GPUs.

    quantities  ``3Gi`` -> bytes
    sights      a Node or Pod object -> what matters of it
    identity    pods -> jobs, by owner, label or name, and by when they were there
    usage       metrics-server or kubelet summary -> what pods and nodes use
    dcgm        DCGM exporter, through Prometheus -> accelerators, and whose they are
    readings    all of it together -> samples of a job on a node
    reports     pods -> replicas of jobs that no scaler of ours runs
    door        the API server, over HTTP
    sources     asks all of them; what cannot be had is named, with what mends it
    loop        look, keep, deliver, say how it is
    check       what is missing, for ``brain doctor --cluster``

Everything but ``door``, ``sources``, ``loop`` and ``check`` is pure. Pods without our agent are
measured from outside; those with it measure themselves, and more.
"""
