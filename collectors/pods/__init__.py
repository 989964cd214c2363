"""Measures jobs through a cluster's API: nodes, pods, their ends, usage and GPUs.

    quantities  ``3Gi`` -> bytes
    sights      a Node or Pod object -> the fields that matter
    identity    pods -> jobs, by owner, label or name, and by the time of their existence
    usage       metrics-server or kubelet summary -> usage of pods and nodes
    dcgm        DCGM exporter, through Prometheus -> accelerators, and the pods that have them
    readings    all of these -> samples of a job on a node
    reports     pods -> replicas of jobs that no scaler of Brain runs
    door        the API server, over HTTP
    sources     reads all sources, and names those that fail, with the remedy
    loop        reads, spools, delivers, and reports its status
    check       finds missing parts, for ``brain doctor --cluster``

All modules except ``door``, ``sources``, ``loop`` and ``check`` are pure. Pods without Brain's
agent are measured from outside; in other pods the agent measures, in more detail.
"""
