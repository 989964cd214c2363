"""Asks the API server if a replica's pod still exists, for an agent that was paused.

A pod may form a world without the members of the last world only if the operator has named the pod
as the meeting place of the agents. The operator names a pod only once all pods with lower replica
ids are gone. So if a pod still exists, the operator has named no pod with a higher id.
"""

from brain.errors import Unavailable
from brain.views import PodRequest, PodSeen
from scaler.kubernetes.pods import identity
from scaler.kubernetes.replicas.fetching import fetch
from scaler.kubernetes.runtime.cluster import Cluster, Object

_GONE = PodSeen(stays=False, detail="its pod was deleted from the cluster")


def ask_for_pod(cluster: Cluster, job: Object | None, request: PodRequest) -> PodSeen:
    """Ask the API server if a pod exists now, because the operator's stores may be out of date.

    ``job`` is the job's ElasticJob; None if this operator has none.

    Raises:
        Unavailable: this operator knows no such ElasticJob, or the API server does not answer.
        NotAllowed: the API server refuses to answer.
    """
    if job is None:
        # No proof that the pod is gone: another operator may have the job.
        raise Unavailable(f"this operator knows no ElasticJob with the uid {request.job}")
    pod = fetch(cluster, job, request.replica)
    return seen_as(pod) if pod is not None else _GONE


def seen_as(pod: Object) -> PodSeen:
    """Return ``PodSeen`` for a pod's object; a pod that is being deleted or has ended does not
    stay.

    >>> seen_as({"metadata": {}, "status": {"phase": "Pending"}})
    PodSeen(stays=True, detail='')
    >>> seen_as({"metadata": {}, "status": {"phase": "Failed"}})
    PodSeen(stays=False, detail='its pod has Failed')
    """
    metadata, phase = pod["metadata"], (pod.get("status") or {}).get("phase")
    if "deletionTimestamp" in metadata:
        return PodSeen(stays=False, detail="its pod is being deleted")
    if identity.ENDING in (metadata.get("annotations") or {}):
        return PodSeen(stays=False, detail="the operator recorded that its pod had ended")
    # A pod of which one container still waits for its image is Pending, and its agent may run.
    if phase in ("Succeeded", "Failed"):
        return PodSeen(stays=False, detail=f"its pod has {phase}")
    return PodSeen(stays=True)
