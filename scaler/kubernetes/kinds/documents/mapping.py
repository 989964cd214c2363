"""Converts an ElasticJob to a job document; ``building`` does the reverse.

| document | ElasticJob |
|---|---|
| name, project | `metadata.name`, `metadata.namespace` |
| command, image | those of the container `main`, else of the first one |
| replicas | `minReplicas`, `maxReplicas`, `unit` and `replicas` of the scaled role |
| … if missing | `--nnodes`, `--node_unit` of the command, also in `sh -c`; else `replicas` |
| processesPerReplica | the field, else `--nproc_per_node`, else 1 |
| resources | what a pod reserves: requests, else limits, over all its containers |
| accelerator | the field, else the node selector |
| groups, roles | `groups` of the scaled role; their templates give amounts and accelerator |
| optimizeMode | the field; `manual` if `autoScale` or `enableElasticScheduling` is false |
| restarts.limit | the field, else `--max_restarts`, else 10 |
| checkpoint.graceSeconds | the field, else `--shutdown-timeout`, else the pod's grace less 25 s |
| directory | `workingDir` of the container; not converted back from an ElasticJob |
| environment | not converted; values of a document go into a Secret of the job |
| … `fromSecret` | a `secretKeyRef` of the container; `fromFile` is refused |
| preemptible | refused in a document, because an ElasticJob has no such field |
| all others | the fields of the same name |
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from math import lcm
from typing import Any

import msgspec

from brain.errors import BadInput, ImpossibleBounds
from brain.types.allocation import Bounds
from brain.types.job import (
    ApprovalPolicy,
    BatchBounds,
    Budget,
    Checkpoint,
    JobDocument,
    OptimizeMode,
    Parallelism,
    Restarts,
)
from brain.types.resources import Resources
from brain.types.roles import RoleSize, is_group
from scaler.kubernetes.kinds.documents.commands import Launch
from scaler.kubernetes.kinds.documents.templates import (
    accelerator,
    command_of,
    grace_seconds,
    launch_in,
    main_container,
    reserved,
)
from scaler.kubernetes.kinds.elasticjob import (
    ElasticJob,
    GroupSpec,
    ReplicaSpec,
    ReplicaType,
    Strategy,
)
from scaler.kubernetes.kinds.quantities import resources
from scaler.kubernetes.kinds.scaleplan import ScalePlan


def job_document(job: ElasticJob) -> JobDocument:
    """Build Brain's job document of ``job``.

    Raises:
        BadInput: no size satisfies both the fields and the command, or Brain refuses a value; the
        message names field, value and remedy.
    """
    spec, role = job.spec, job.spec.replica_specs[job.scaled]
    launch = launch_in(role.template)
    document = JobDocument(
        name=job.metadata.name,
        project=job.metadata.namespace,
        command=command_of(role.template),
        image=main_container(role.template).get("image"),
        replicas=bounds(job),
        processes_per_replica=processes(role),
        roles=_roles(job),
        groups={name: each for name, each in _groups(job).items() if is_group(name)},
        resources=reserved(role.template),
        accelerator=spec.accelerator or accelerator(role.template),
        parallelism=_same(spec.parallelism, Parallelism),
        batch=_same(spec.batch, BatchBounds),
        checkpoint=_checkpoint(spec.checkpoint, role),
        epochs=spec.epochs,
        steps=spec.steps,
        budget=_same(spec.budget, Budget),
        deadline=spec.deadline,
        restarts=_restarts(job, launch),
        priority=spec.priority or 0,
        independent=spec.independent,
        optimize_mode=_optimize_mode(job, role),
        policy=_same(spec.policy, ApprovalPolicy),
    )
    try:
        document.check()
    except BadInput as bad:
        raise type(bad)(f"spec: {bad}", field=bad.field) from bad
    return document


def bounds(job: ElasticJob) -> Bounds:
    """Return the sizes that the scaled role may have.

    Raises:
        ImpossibleBounds: no size satisfies all fields.
    """
    if job.strategy is Strategy.LOCAL:
        return Bounds()
    role = job.spec.replica_specs[job.scaled]
    launch, asked = launch_in(role.template), role.replicas or None
    low, high = launch.nodes or (asked or 1, asked or _most(job) or 1)
    low = role.min_replicas or min(low, role.max_replicas or low)
    if role.min_replicas is None and role.groups and job.status.request is not None:
        # A smaller ``replicas`` is a request, which Brain clamps.
        low = max(low, len(role.groups) + 1)
    high = role.max_replicas or max(high, low)
    high, unit = min(high, _most(job) or high), unit_of(job, role, launch)
    if role.min_replicas is None:
        # 31 replicas of unit 4 run as 28, and the other 3 replicas stay warm.
        low = max(low // unit, 1) * unit
    first = -(-low // unit) * unit
    if first > high:
        raise _impossible(job, low, high, unit)
    start = max(first, min(asked or first, high) // unit * unit)
    return Bounds(min=low, max=high, unit=unit, start=start if start != low else None)


def unit_of(job: ElasticJob, role: ReplicaSpec, launch: Launch) -> int:
    """Return the number of replicas that are added or removed together."""
    if role.unit:
        return role.unit
    if job.spec.parallelism is not None:
        group = job.spec.parallelism.tensor * job.spec.parallelism.pipeline
        each = processes(role)
        return lcm(group, each) // each
    return launch.unit or 1


def processes(alike: ReplicaSpec | GroupSpec) -> int:
    """Return the number of worker processes of each replica."""
    if alike.processes_per_replica:
        return alike.processes_per_replica
    match launch_in(alike.template).processes:
        case int(number):
            return number
        case "gpu" | "auto":
            return max(1, reserved(alike.template).gpus)
        case "cpu":
            return max(1, reserved(alike.template).cpu_millis // 1000)
    return 1


def _roles(job: ElasticJob) -> dict[str, RoleSize]:
    """Return the roles of the document, which lack the values that every role has."""
    kind = accelerator(job.template_of())
    found = {name: each for name, each in _groups(job).items() if not is_group(name)}
    for name, each in found.items():
        if each.processes_per_replica == 1:
            found[name] = replace(found[name], processes_per_replica=None)
        if each.accelerator == kind:
            found[name] = replace(found[name], accelerator=None)
    return found


def _groups(job: ElasticJob) -> dict[str, RoleSize]:
    """Return the groups of the object, by name; those that are roles, too.

    Brain keeps the numbers of replicas that a job began with. An edit is a request, and may ask for
    more than the least size of the job has beside it.
    """
    found = {name: _group(job, name, group) for name, group in job.groups.items()}
    if not found or job.status.request is None:
        return found
    # A Brain that lost its database begins with as many of them as the least size has room for.
    sizes = {name: each.replicas for name, each in found.items()}
    fitting = clip_groups(sizes, bounds(job).min - 1)
    return {name: replace(each, replicas=fitting[name]) for name, each in found.items()}


def clip_groups(sizes: Mapping[str, int], most: int) -> dict[str, int]:
    """Reduce the replicas of groups, the largest first, until their total is ``most`` or each group
    has 1.

    >>> clip_groups({"large": 5, "small": 3, "tiny": 1}, 6)
    {'large': 3, 'small': 2, 'tiny': 1}
    """
    numbers = sizes.values()
    caps = range(1, max(numbers, default=0) + 1)
    cap = max(1, bisect_right(caps, most, key=lambda cap: sum(min(n, cap) for n in numbers)))
    clipped = {name: min(number, cap) for name, number in sizes.items()}
    for name in sorted(name for name, number in sizes.items() if number > cap):
        clipped[name] += sum(clipped.values()) < most
    return clipped


def _group(job: ElasticJob, name: str, group: GroupSpec) -> RoleSize:
    template = job.template_of(name)
    whole = msgspec.structs.replace(group, template=template)
    return RoleSize(
        replicas=group.replicas,
        processes_per_replica=processes(whole),
        resources=reserved(template),
        accelerator=accelerator(template),
    )


def _most(job: ElasticJob) -> int | None:
    """Return the number of replicas that fits ``resourceLimits`` beside the other roles; None if
    any does.
    """
    limits, most = job.spec.resource_limits, None
    if not limits:
        return None
    others = Resources()
    for name, spec in job.spec.replica_specs.items():
        if name not in (job.scaled, ReplicaType.MASTER):
            others = others + reserved(spec.template).times(spec.replicas or 1)
    one = reserved(job.spec.replica_specs[job.scaled].template)
    given = resources(limits, "spec.resourceLimits")
    named = {
        "cpu_millis": "cpu" in limits,
        "memory_bytes": "memory" in limits,
        "gpus": any(name not in ("cpu", "memory") for name in limits),
    }
    for name in (name for name, is_given in named.items() if is_given):
        need = getattr(one, name)
        if need:
            held = max(0, getattr(given, name) - getattr(others, name)) // need
            most = held if most is None else min(most, held)
    return most


def _impossible(job: ElasticJob, low: int, high: int, unit: int) -> ImpossibleBounds:
    path = f"spec.replicaSpecs.{job.scaled}"
    most = _most(job)
    if most is not None and most < max(low, unit):
        limits = ", ".join(f"{k} {v}" for k, v in job.spec.resource_limits.items())
        return ImpossibleBounds(
            f"spec.resourceLimits ({limits}) allow {most} replicas of {job.scaled}, but the "
            f"job needs at least {max(low, unit)}; raise the limits, or lower "
            f"{path}.minReplicas",
            field="spec.resourceLimits",
        )
    return ImpossibleBounds(
        f"{path}.unit {unit} has no multiple from {min(low, high)} to {high}; raise maxReplicas "
        f"(or replicas, or --nnodes) to {-(-low // unit) * unit}",
        field=f"{path}.unit",
    )


def _optimize_mode(job: ElasticJob, role: ReplicaSpec) -> OptimizeMode:
    told = (role.auto_scale, job.spec.enable_elastic_scheduling)
    return OptimizeMode.MANUAL if False in told else job.spec.optimize_mode


def _restarts(job: ElasticJob, launch: Launch) -> Restarts:
    said = job.spec.restarts.limit if job.spec.restarts else None
    limit = launch.max_restarts if said is None else said
    return Restarts() if limit is None else Restarts(limit=limit)


def _checkpoint(said: msgspec.Struct | None, role: ReplicaSpec) -> Checkpoint:
    checkpoint: Checkpoint = _same(said, Checkpoint)
    if checkpoint.grace_seconds is not None:
        return checkpoint
    return replace(checkpoint, grace_seconds=grace_seconds(role.template))


def _same(fields: msgspec.Struct | None, kind: type[Any]) -> Any:
    """Return a document's value with the values of the same names in ``fields``."""
    given = msgspec.structs.asdict(fields) if fields is not None else {}
    return kind(**{name: value for name, value in given.items() if value is not None})


def unserved(job: ElasticJob, brain: str) -> tuple[str, ...]:
    """Return the requests of a spec that have no effect, for the condition Honoured.

    Each request gets one sentence.

    ``brain`` is the address of the installation's own Brain.
    """
    spec, found = job.spec, []
    if spec.brain_service and spec.brain_service != brain:
        found.append(f"spec.brainService {spec.brain_service} is ignored, but {brain}")
    if spec.enable_dynamic_sharding:
        found.append(
            "spec.enableDynamicSharding is ignored: Brain does not divide the data; the script "
            "reads all of it"
        )
    if ReplicaType.MASTER in spec.replica_specs:
        found.append("spec.replicaSpecs.dlrover-master is ignored: Brain needs no master pod")
    return tuple(found)


def plan_unserved(plan: ScalePlan, scaled: str) -> tuple[str, ...]:
    """Return the requests of an accepted plan that have no effect, apart from its size.

    Each request gets one sentence.

    ``scaled`` is the role whose size plans change.
    """
    spec, found = plan.spec, []
    wanted = spec.replica_resource_specs.get(scaled)
    if (
        wanted is not None
        and wanted.replicas is not None
        and (spec.create_pods or spec.remove_pods)
    ):
        found.append(
            "spec.createPods and removePods are not supported; give the number of replicas instead"
        )
    sized = wanted is not None and wanted.replicas is not None
    if spec.migrate_pods and (sized or spec.create_pods or spec.remove_pods):
        found.append(
            "spec.migratePods is set beside a new size, but one plan either changes a size or "
            "moves pods; create a plan for each"
        )
    return tuple(found)
