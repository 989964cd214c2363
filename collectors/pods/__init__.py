"""Measures jobs through a cluster's API: nodes, pods, their ends, usage and GPUs.

    quantities  ``3Gi`` -> bytes
    sights      a Node or Pod object -> the fields that the collector needs
    identity    pods -> jobs, by owner, label or name, and by when they existed
    usage       metrics-server or kubelet summary -> usage of pods and nodes
    dcgm        DCGM exporter, through Prometheus -> accelerators, and the pods that have them
    readings    all of these -> samples of a job on a node
    reports     pods -> replicas of jobs that no scaler of Brain runs
    door        HTTP client of the API server
    sources     reads all sources, and lists those that fail, with the remedy
    loop        reads the cluster, spools and delivers samples, writes its status
    check       finds missing parts, for ``brain doctor --cluster``

All modules except ``door``, ``sources``, ``loop`` and ``check`` are pure. This collector measures
only pods without Brain's agent, from outside; an agent measures its own pod in more detail.
"""
