"""A JobSet (``jobset.x-k8s.io/v1alpha2``) whose workers are one elastic indexed Job.

Facts from JobSet's own sources (releases 0.9 to 0.12): JobSet's webhook never lets ``replicas`` of
a replicated Job change. In a suspended JobSet it lets only labels, selectors and tolerations of
pods change. So the number of Jobs is fixed, but the number of pods in a Job is not. Kubernetes lets
``parallelism`` and ``completions`` of an indexed Job change together, and removes the highest
indexes first. With the feature gate ``ElasticJobSet`` (0.12, off by default) the webhook lets both
numbers change in the JobSet, and the controller copies them into the Job. Without the feature gate
the webhook refuses the change, and the controller does not touch the Job's numbers until the JobSet
restarts and creates the Job again.

The job's bounds are those of torchrun's ``--nnodes=MIN:MAX``: running pods are not informed of a
new size, so only sizes that this flag allows are possible. Pods are ``<jobset>-<replicated
job>-0-<index>-<random letters>``.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from brain.errors import BadInput, NotFound
from brain.types.allocation import Bounds
from brain.types.job import JobId
from scaler.adapters import foreign
from scaler.adapters.training import Training, hands_off, is_true, processes
from scaler.kubernetes.kinds.documents import launch_in, reserved
from scaler.kubernetes.runtime.cluster import Cluster, Denied, Kind, Object

JOBSET = Kind("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
JOB = Kind("batch", "v1", "jobs", "Job")
NAME, REPLICATED_JOB = (f"jobset.sigs.k8s.io/{word}-name" for word in ("jobset", "replicatedjob"))
_OURS = "jobset.sigs.k8s.io/jobset-controller"


class JobSets:
    """JobSets, each of which trains in one of its Jobs; the pods of its other Jobs are not
    replicas.
    """

    kind = JOBSET
    label = NAME
    beside = (JOB, NAME)

    def training(self, obj: Object, beside: Iterable[Object] = ()) -> Training:
        """Read a JobSet; ``beside`` has the Jobs of its namespace that belong to JobSets."""
        meta, spec = obj["metadata"], obj.get("spec") or {}
        annotations = meta.get("annotations") or {}
        role = _workers(obj)
        asked = (role.get("template") or {}).get("spec") or {}
        stem = f"{meta['name']}-{role['name']}-0"
        made = next((each for each in beside if _made(each, meta["uid"], stem)), None)
        workers = int(((made or {}).get("spec") or asked).get("parallelism", 1))
        template = asked.get("template") or {}
        launch = launch_in(template)
        least, most = launch.nodes or (workers, workers)
        over = {"Completed": "Succeeded", "Failed": "Failed"}
        return Training(
            kind=self.kind,
            job=JobId(meta["uid"]),
            namespace=meta.get("namespace", ""),
            name=meta["name"],
            stem=stem,
            workers=workers,
            bounds=foreign.narrowed(Bounds(min=least, max=most), annotations),
            suspended=bool(spec.get("suspend")),
            generation=meta.get("generation", 0),
            over=next((said for each, said in over.items() if is_true(obj, each)), None),
            owner=made["metadata"]["uid"] if made else None,
            template=template,
            processes=processes(launch.processes, reserved(template)),
            restarts=10 if launch.max_restarts is None else launch.max_restarts,
            acts=foreign.may_act(annotations),
            refusal=hands_off(obj, JOBSET, spec.get("managedBy"), _OURS)
            or _fixed(meta["name"], role, elastic=least < most),
        )

    def resize(self, cluster: Cluster, read: Training, workers: int) -> None:
        """Write the number of workers as ``parallelism`` and ``completions`` into the Job.

        If the JobSet's webhook accepts both numbers, write them into the JobSet, too; this changes
        nothing in a JobSet that already has them. While a JobSet is suspended, restarts or starts
        its Jobs in order, its Job may be missing. That Job will get the JobSet's numbers, and the
        next call writes both numbers into the Job. Each write contains the object's uid, so that no
        write recreates a deleted object.
        """
        size = {"parallelism": workers, "completions": workers}
        role = read.stem.removeprefix(f"{read.name}-").removesuffix("-0")
        changed = {"name": role, "template": {"spec": size}}
        metadata = {"namespace": read.namespace, "name": read.name, "uid": read.job}
        with suppress(Denied):
            cluster.apply(JOBSET, {"metadata": metadata, "spec": {"replicatedJobs": [changed]}})
        if read.owner is not None:
            patch = {"metadata": {"uid": read.owner}, "spec": size}
            with suppress(NotFound):
                cluster.merge(JOB, read.namespace, read.stem, patch)

    def suspend(self, cluster: Cluster, read: Training, suspend: bool) -> None:
        """Write ``suspend``; a suspended Job keeps its ``parallelism`` and ``completions``."""
        patch = {"metadata": {"uid": read.job}, "spec": {"suspend": suspend}}
        cluster.merge(JOBSET, read.namespace, read.name, patch)


def _workers(obj: Object) -> Mapping[str, Any]:
    """Return the replicated Job that has the workers: the annotation's, else the only one."""
    meta = obj["metadata"]
    roles = {each["name"]: each for each in obj["spec"].get("replicatedJobs") or ()}
    named = (meta.get("annotations") or {}).get(foreign.WORKERS)
    if named is None and len(roles) == 1:
        return dict(next(iter(roles.values())))
    if named not in roles:
        have = ", ".join(roles) or "none"
        raise BadInput(
            f"JobSet {meta['name']} has the replicated Jobs {have}; set annotation "
            f"{foreign.WORKERS}, which is {named!r}, to the name of the Job that trains",
            field=foreign.WORKERS,
        )
    return dict(roles[named])


def _made(job: Object, jobset: str, name: str) -> bool:
    meta = job["metadata"]
    owned = any(each.get("uid") == jobset for each in meta.get("ownerReferences") or ())
    return owned and meta["name"] == name and "deletionTimestamp" not in meta


def _fixed(name: str, role: Mapping[str, Any], *, elastic: bool) -> str | None:
    """Return why the number of pods cannot change; None if it can."""
    spec, path = role["template"]["spec"], f"replicated Job {role['name']} of JobSet {name}"
    if role.get("replicas", 1) != 1:
        return (
            f"{path} has replicas {role['replicas']}, but Brain resizes only a replicated Job with "
            "1 replica; create the JobSet again with replicas 1"
        )
    if spec.get("completionMode") == "NonIndexed":
        return (
            f"{path} has completionMode NonIndexed, so its number of pods is fixed; create "
            "the JobSet again without completionMode"
        )
    if spec.get("completions") != spec.get("parallelism", 1):
        return (
            f"{path} has parallelism {spec.get('parallelism', 1)} and completions "
            f"{spec.get('completions')}, and Kubernetes changes only equal numbers together; "
            "create the JobSet again with equal numbers"
        )
    if not elastic:
        return (
            f"{path} has no --nnodes=MIN:MAX in its command, so its pods start with a fixed "
            "number of nodes; add the bounds and create the JobSet again"
        )
    return None
