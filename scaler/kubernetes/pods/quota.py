"""Workloads of Kueue, by which a job requests quota for its pods. All functions are pure.

One Workload requests a job's smallest size, with the pods of all roles and groups. Each further
unit has a Workload of its own; all pods of a unit are of one group. So Kueue can admit and preempt
single units while the others train, without a feature gate of Kueue. Each group is a pod set,
because it has a template of its own.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any
from zlib import crc32

import msgspec

from scaler.kubernetes.kinds import ElasticJob, ReplicaType
from scaler.kubernetes.kinds.fields import QUEUE
from scaler.kubernetes.pods import identity
from scaler.kubernetes.pods.identity import WORKER
from scaler.kubernetes.runtime.cluster.kind import Kind, Object

WORKLOAD = Kind("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")
#: Label by which a Workload names its job.
JOB_UID = "kueue.x-k8s.io/job-uid"
#: Label with a Workload's number: 0 is the least size, each other one a further unit.
NUMBER = f"{identity.DOMAIN}/unit"
#: Annotation with a digest of the job's request, to detect that the job asks for other pods now.
_ASKS = f"{identity.DOMAIN}/asks"


def queue_of(obj: Object) -> str | None:
    """Return the LocalQueue that a job's label names."""
    found = (obj["metadata"].get("labels") or {}).get(QUEUE)
    return str(found) if found else None


def job_of(workload: Object) -> str | None:
    """Return the uid of a Workload's job."""
    found: str | None = (workload["metadata"].get("labels") or {}).get(JOB_UID)
    return found


def runs(workload: Object) -> bool:
    """True if Kueue has admitted the Workload, and is not evicting it."""
    return is_true(workload, "Admitted") and not is_true(workload, "Evicted")


def pods_in(workload: Object, job: ElasticJob) -> Counter[str]:
    """Return the pods of each group for which a Workload was made, even if the job requests other
    numbers now; ``worker`` counts the scaled role's other pods.
    """
    kinds = {job.scaled: WORKER, **{group: group for group in job.groups}}
    sets = [each for each in workload["spec"]["podSets"] if each["name"] in kinds]
    return Counter({kinds[each["name"]]: each["count"] for each in sets})


def admitted(have: Mapping[int, Object], job: ElasticJob) -> Counter[str]:
    """Return the replicas of each group in the admitted Workloads."""
    found = Counter[str]()
    if 0 in have and runs(have[0]):
        for each in filter(runs, have.values()):
            found += pods_in(each, job)
    return found


def outdated(workload: Object, made: Object) -> bool:
    """True if a Workload has no quota yet, and its pods differ from ``made``, which the job
    requests now.
    """
    said = (workload["metadata"].get("annotations") or {}).get(_ASKS)
    return said != made["metadata"]["annotations"][_ASKS] and not is_true(workload, "QuotaReserved")


def words(workload: Object) -> str:
    """Return Kueue's message about a Workload that it does not admit."""
    if (workload.get("spec") or {}).get("active") is False:
        return "the Workload is inactive; set its spec.active to true"
    listed = {c["type"]: c for c in (workload.get("status") or {}).get("conditions") or ()}
    if is_true(workload, "Evicted"):
        return str(listed["Evicted"].get("message"))
    for type in ("QuotaReserved", "Admitted"):
        if type in listed and listed[type].get("status") == "False":
            return str(listed[type].get("message"))
    return "Kueue has not examined the Workload yet"


def counts(job: ElasticJob, least: int, groups: Mapping[str, int]) -> dict[str, int]:
    """Return the pods of each role and group at the smallest size of the scaled role, which
    includes the ``groups``.
    """
    others = {
        role: 1 if spec.replicas is None else spec.replicas
        for role, spec in job.spec.replica_specs.items()
        if role not in (job.scaled, ReplicaType.MASTER)
    }
    found = {job.scaled: least - sum(groups.values()), **groups, **others}
    return {name: count for name, count in found.items() if count}


def workload(job: ElasticJob, queue: str, number: int, pods: Mapping[str, int]) -> dict[str, Any]:
    """Build the Workload for a number of pods of each role and group. The job owns the Workload."""
    meta, roles = job.metadata, job.spec.replica_specs
    templates = {
        name: job.template_of(name) if name in job.groups else roles[name].template or {}
        for name in pods
    }
    spec = {
        "queueName": queue,
        "podSets": [
            {"name": name, "count": count, "template": {"spec": templates[name].get("spec") or {}}}
            for name, count in pods.items()
        ],
    }
    asks = crc32(msgspec.json.encode(spec, order="deterministic"))
    return {
        "apiVersion": WORKLOAD.api_version,
        "kind": WORKLOAD.kind,
        "metadata": {
            "name": f"elasticjob-{meta.name}-{meta.uid[:5]}-{number}",
            "namespace": meta.namespace,
            "labels": {JOB_UID: meta.uid, NUMBER: str(number)},
            "annotations": {_ASKS: f"{asks:08x}"},
            "ownerReferences": [identity.owner(meta.name, meta.uid)],
        },
        "spec": spec,
    }


def is_true(obj: Object, type: str) -> bool:
    """True if a condition of the object is True."""
    listed = (obj.get("status") or {}).get("conditions") or ()
    return any((each.get("type"), each.get("status")) == (type, "True") for each in listed)
