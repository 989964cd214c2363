"""Names and labels by which pods are known: DLRover's, and those every tool reads.

Identity is apart from rank: the id of a replica is never used again, its rank may be.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from brain.types.job import JobId
from scaler.kubernetes.runtime.cluster.kind import Key, Object

#: Our own words on pods, jobs and plans.
DOMAIN = "elastic.iml.github.io"
#: Names the person whose object it is: the owner of a job, or who asked for a plan.
OWNER = f"{DOMAIN}/owner"
API_VERSION, KIND = f"{DOMAIN}/v1alpha1", "ElasticJob"

NAME, TYPE, INDEX = (
    f"elasticjob.dlrover/{word}" for word in ("name", "replica-type", "replica-index")
)
RANK, RELAUNCHES = (f"elasticjob.dlrover/{word}" for word in ("rank-index", "relaunch-count"))
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "brain-scaler"
#: uid of the job, on pods of the role that plans scale: names are used again, uids are not.
UID = f"{DOMAIN}/job-uid"

#: Annotations of pods.
GENERATION, WRITTEN, ASKED = (
    f"{DOMAIN}/{word}" for word in ("generation", "written-at", "asked-at")
)
#: How a replica ended, once that was written down: JSON.
ENDING = f"{DOMAIN}/ending"
#: Where its agent finds the others: JSON, kept current by the scaler.
PLACE = f"{DOMAIN}/place"

#: The ScalePlan that has it replaced elsewhere.
MOVES = f"{DOMAIN}/moved-by"

#: What its replica was made to reserve, or was resized to: JSON.
RESERVES = f"{DOMAIN}/reserves"

#: Why it does not come to reserve what its plan says.
UNENFORCED = f"{DOMAIN}/unenforced"

#: Annotation of jobs: ``off`` leaves containers as they are.
INJECT = f"{DOMAIN}/inject"
#: Annotation of jobs: ``brain`` has ``torchrun`` be ours, too.
TORCHRUN = f"{DOMAIN}/torchrun"

WORKER = "worker"
_MASTER = re.compile(r"elasticjob-(.+)-dlrover-master")
#: Of 63 characters, so that `-16384` finds room behind them.
_SERVICE_LENGTH = 57


def pod_name(job: str, type: str, id: int) -> str:
    """The name of a replica's pod.

    >>> pod_name("digits", "worker", 3)
    'digits-edljob-worker-3'
    """
    return f"{job}-edljob-{type}-{id}"


def service_name(job: str, type: str) -> str:
    """The headless service of a type's replicas, and the domain of its pods.

    A name of a job may begin with a digit and have 63 characters; one of a service may not, with a
    rank behind it. The digest keeps apart what is alike then.

    >>> service_name("digits", "worker")
    'digits-edljob-worker'
    >>> service_name("7b", "worker")
    'j-7b-925a7bf1-edljob-worker'
    """
    tail = f"-edljob-{type}"
    if job[:1].isalpha() and len(job) + len(tail) <= _SERVICE_LENGTH:
        return job + tail
    digest = hashlib.sha256(job.encode()).hexdigest()[:8]
    room = _SERVICE_LENGTH - len(f"j--{digest}{tail}")
    return f"j-{job[:room].rstrip('-')}-{digest}{tail}"


def secret_name(job: str) -> str:
    """The Secret with the token of a job's agents."""
    return f"{job}-edljob-token"


def budget_name(job: str) -> str:
    """The PodDisruptionBudget of a job's pods."""
    return f"{job}-edljob-budget"


def selector(job: str) -> dict[str, str]:
    """Labels that all pods of a job of ours have."""
    return {NAME: job, MANAGED_BY: MANAGER}


def labels(
    job: str, uid: str | None, type: str, id: int, *, rank: int, relaunches: int
) -> dict[str, str]:
    """Labels of a replica's pod; ``uid`` None: no plan scales its role."""
    scaled = {UID: uid} if uid is not None else {}
    return scaled | {
        "app": "dlrover",
        NAME: job,
        TYPE: type,
        INDEX: str(id),
        RANK: str(rank),
        RELAUNCHES: str(relaunches),
        "app.kubernetes.io/name": "elasticjob",
        "app.kubernetes.io/instance": job,
        "app.kubernetes.io/component": type,
        MANAGED_BY: MANAGER,
    }


def owner(job: str, uid: str) -> dict[str, Any]:
    """The owner reference of what goes with a job."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def place_of(pod: Object) -> Mapping[str, Any]:
    """Return the place that a pod was told; empty where there is none, or it cannot be read."""
    said = (pod["metadata"].get("annotations") or {}).get(PLACE)
    try:
        found = json.loads(said) if said else {}
    except ValueError:
        # Somebody edited it by hand; it is written anew.
        return {}
    return found if isinstance(found, Mapping) else {}


def replica_of(pod: Object) -> tuple[str, int] | None:
    """Type and id of the replica that a pod is; None where it is none of ours."""
    found: Mapping[str, str] = pod["metadata"].get("labels") or {}
    index = found.get(INDEX, "")
    if TYPE not in found or not index.isdecimal() or found.get(MANAGED_BY) != MANAGER:
        return None
    return found[TYPE], int(index)


def uid_of(pod: Object) -> str | None:
    """uid of the job that a pod belongs to."""
    found: Mapping[str, str] = pod["metadata"].get("labels") or {}
    return found.get(UID)


def job_index(pod: Object) -> tuple[str, ...]:
    """The job whose pods plans scale; an index of stores."""
    uid = uid_of(pod)
    return (uid,) if uid and replica_of(pod) else ()


def scaled_of(pod: Object) -> tuple[JobId, int] | None:
    """Job and id of the replica that a pod is; None: no plan scales its role, or it is not ours."""
    uid, found = uid_of(pod), replica_of(pod)
    return None if uid is None or found is None else (JobId(uid), found[1])


def theirs_of(pod: Object) -> tuple[JobId, int] | None:
    """Job and id of the worker that a pod of DLRover's own master is; None where it is none."""
    found: Mapping[str, str] = pod["metadata"].get("labels") or {}
    index = found.get(INDEX, "")
    if MANAGED_BY in found or found.get(TYPE) != WORKER or not index.isdecimal():
        return None
    for owner in pod["metadata"].get("ownerReferences") or ():
        # DLRover writes the kind in small letters.
        if str(owner.get("kind", "")).lower() == KIND.lower():
            return JobId(owner["uid"]), int(index)
    return None


def their_index(pod: Object) -> tuple[str, ...]:
    """The job of a worker of DLRover's master; an index of stores."""
    found = theirs_of(pod)
    return (found[0],) if found else ()


def master_index(pod: Object) -> tuple[str, ...]:
    """The job whose DLRover master a pod is; an index of stores."""
    metadata = pod["metadata"]
    found = _MASTER.match(metadata["name"])
    return (str(Key(metadata.get("namespace", ""), found[1])),) if found else ()
