"""Names and labels that identify pods: the ones that DLRover uses, and the ones that all tools
read.

Identity and rank differ: the id of a replica is never reused, but a rank may be.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from brain.types.job import JobId
from scaler.kubernetes.runtime.cluster.kind import Key, Object

#: Domain of our own labels and annotations on pods, jobs and plans.
DOMAIN = "elastic.iml.github.io"
#: Annotation that names a person: the owner of a job, or the requester of a plan.
OWNER = f"{DOMAIN}/owner"
API_VERSION, KIND = f"{DOMAIN}/v1alpha1", "ElasticJob"

NAME, TYPE, INDEX = (
    f"elasticjob.dlrover/{word}" for word in ("name", "replica-type", "replica-index")
)
RANK, RELAUNCHES = (f"elasticjob.dlrover/{word}" for word in ("rank-index", "relaunch-count"))
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "brain-scaler"
#: Label of pods whose role plans scale: the uid of the job. Names are used again, uids are not.
UID = f"{DOMAIN}/job-uid"
#: Label of all pods of a job, by which Services tell them from pods of an earlier job of the same
#: name: the uid of the ElasticJob.
OBJECT = f"{DOMAIN}/elasticjob-uid"

#: Label of pods of a group: its name.
GROUP = f"{DOMAIN}/group"

#: Annotations of pods.
GENERATION, WRITTEN, ASKED = (
    f"{DOMAIN}/{word}" for word in ("generation", "written-at", "asked-at")
)
#: The recorded end of a replica: JSON.
ENDING = f"{DOMAIN}/ending"
#: The addresses at which a pod's agent finds the others: JSON, kept current by the scaler.
PLACE = f"{DOMAIN}/place"

#: The plan that moves the pod elsewhere: the name of a ScalePlan, or ``brain/`` and a generation.
MOVES = f"{DOMAIN}/moved-by"
#: The only node that the pod may run on, because a plan moves it there.
MOVES_TO = f"{DOMAIN}/moved-to"

#: Amounts of the pod's replica, from its start or last resize: JSON.
RESERVES = f"{DOMAIN}/reserves"

#: Why the pod does not get the amounts of its plan.
UNENFORCED = f"{DOMAIN}/unenforced"

#: Annotation of jobs: ``off`` leaves containers as they are.
INJECT = f"{DOMAIN}/inject"
#: Annotation of jobs: ``brain`` replaces ``torchrun`` by our launcher, too.
TORCHRUN = f"{DOMAIN}/torchrun"

WORKER = "worker"
_MASTER = re.compile(r"elasticjob-(.+)-dlrover-master")
#: Most characters of a name; of 63, `-16384` takes the rest.
_SERVICE_LENGTH = 57


def pod_name(job: str, type: str, id: int) -> str:
    """Return the name of a replica's pod.

    >>> pod_name("digits", "worker", 3)
    'digits-edljob-worker-3'
    """
    return f"{job}-edljob-{type}-{id}"


def service_name(job: str, type: str) -> str:
    """Return the headless service of a type's replicas, which is the DNS domain of their pods.

    The name of a job may begin with a digit and have 63 characters. The name of a service with a
    rank at its end may not. If the job's name does not fit, the service's name contains a digest,
    which keeps similar names apart.

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
    """Return the name of the Secret with the token of a job's agents."""
    return f"{job}-edljob-token"


def budget_name(job: str) -> str:
    """Return the name of the PodDisruptionBudget of a job's pods."""
    return f"{job}-edljob-budget"


def selector(job: str) -> dict[str, str]:
    """Return the labels that all pods of a job of Brain have."""
    return {NAME: job, MANAGED_BY: MANAGER}


def labels(
    job: str, uid: str | None, type: str, id: int, *, rank: int, relaunches: int
) -> dict[str, str]:
    """Return the labels of a replica's pod; ``uid`` is None if no plan changes the size of its
    role.
    """
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
    """Return the owner reference for an object that is deleted with its job."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def place_of(pod: Object) -> Mapping[str, Any]:
    """Return the data that a pod's annotation has for the pod's agent; empty if there is none."""
    said = (pod["metadata"].get("annotations") or {}).get(PLACE)
    try:
        found = json.loads(said) if said else {}
    except ValueError:
        # A person edited the annotation; the operator writes it anew.
        return {}
    return found if isinstance(found, Mapping) else {}


def generation_of(pod: Object) -> int:
    """Return the generation of the plan for which a pod was created; 0 if unknown."""
    said = (pod["metadata"].get("annotations") or {}).get(GENERATION, "")
    return int(said) if said.isdecimal() else 0


def replica_of(pod: Object) -> tuple[str, int] | None:
    """Return type and id of a pod's replica; None if the pod is not one of Brain's."""
    found: Mapping[str, str] = pod["metadata"].get("labels") or {}
    index = found.get(INDEX, "")
    if TYPE not in found or not index.isdecimal() or found.get(MANAGED_BY) != MANAGER:
        return None
    return found[TYPE], int(index)


def uid_of(pod: Object) -> str | None:
    """Return the uid of the job that a pod belongs to."""
    found: Mapping[str, str] = pod["metadata"].get("labels") or {}
    return found.get(UID)


def group_of(pod: Object) -> str:
    """Return the group of a pod; ``worker`` if it is in none."""
    found: Mapping[str, str] = pod["metadata"].get("labels") or {}
    return found.get(GROUP, WORKER)


def job_index(pod: Object) -> tuple[str, ...]:
    """Return the uid of a pod's job, as the keys of an index; empty if no plan changes the pod's
    role.
    """
    uid = uid_of(pod)
    return (uid,) if uid and replica_of(pod) else ()


def scaled_of(pod: Object) -> tuple[JobId, int] | None:
    """Return the job and the id of a pod's replica; None if no plan of Brain changes the pod's
    role.
    """
    uid, found = uid_of(pod), replica_of(pod)
    return None if uid is None or found is None else (JobId(uid), found[1])


def theirs_of(pod: Object) -> tuple[JobId, int] | None:
    """Return job and id of a worker of DLRover's own master; None if the pod is no such worker."""
    found: Mapping[str, str] = pod["metadata"].get("labels") or {}
    index = found.get(INDEX, "")
    if MANAGED_BY in found or found.get(TYPE) != WORKER or not index.isdecimal():
        return None
    for owner in pod["metadata"].get("ownerReferences") or ():
        # DLRover writes the kind in lower case.
        if str(owner.get("kind", "")).lower() == KIND.lower():
            return JobId(owner["uid"]), int(index)
    return None


def their_index(pod: Object) -> tuple[str, ...]:
    """Return the job of a worker pod that DLRover's master created, as the keys of an index."""
    found = theirs_of(pod)
    return (found[0],) if found else ()


def master_index(pod: Object) -> tuple[str, ...]:
    """Return the job of a pod of DLRover's master, as the keys of an index."""
    metadata = pod["metadata"]
    found = _MASTER.match(metadata["name"])
    return (str(Key(metadata.get("namespace", ""), found[1])),) if found else ()
