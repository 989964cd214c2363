"""Reads a replica's pod from the API server, because the operator's stores may be out of date."""

from brain.types.job import JobId
from scaler.kubernetes.kinds.elasticjob import scaled_of
from scaler.kubernetes.pods import identity
from scaler.kubernetes.runtime.cluster import POD, Cluster, NotFound, Object, key_of


def fetch(cluster: Cluster, job: Object, replica: int) -> Object | None:
    """Return the pod of a replica of the ElasticJob ``job``; None if the API server has none.

    Raises:
        Unavailable: the API server does not answer.
        NotAllowed: the API server refuses to answer.
    """
    # Not as a checked kind: an edit that makes the job invalid leaves its pods as they are.
    key, role = key_of(job), scaled_of(job["spec"]["replicaSpecs"])
    try:
        pod = cluster.get(POD, key.namespace, identity.pod_name(key.name, role, replica))
    except NotFound:
        return None
    return pod if identity.scaled_of(pod) == (JobId(job["metadata"]["uid"]), replica) else None
