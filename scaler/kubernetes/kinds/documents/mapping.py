"""Converts an ElasticJob to a job document; ``building`` does the reverse.

| document | ElasticJob |
|---|---|
| name, project | `metadata.name`, `metadata.namespace` |
| command, image | the fields of the container `main`, else of the first container |
| replicas | `minReplicas`, `maxReplicas`, `unit` and `replicas` of the scaled role |
| … if missing | `--nnodes`, `--node_unit` of the command, also in `sh -c`; else `replicas` |
| processesPerReplica | the field, else `--nproc_per_node`, else 1 |
| resources | what a pod reserves: requests, else limits, over all its containers |
| accelerator | the field, else the node selector |
| groups, roles | `groups` of the scaled role; their templates give amounts and accelerator |
| resourceLimits | the field, less the amounts of the other roles in `replicaSpecs` |
| optimizeMode | the field; `manual` if `autoScale` or `enableElasticScheduling` is false |
| restarts.limit | the field, else `--max_restarts`, else 10 |
| checkpoint.graceSeconds | the field, else `--shutdown-timeout`, else the pod's grace less 25 s |
| directory | `workingDir` of the container; not converted back from an ElasticJob |
| environment | not converted; values of a document go into a Secret of the job |
| environment `fromSecret` | a `secretKeyRef` of the container; `fromFile` is refused |
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
from brain.types.allocation import Allocation, Bounds
from brain.types.job import (
    ApprovalPolicy,
    BatchBounds,
    Budget,
    Checkpoint,
    JobDocument,
    OptimizeMode,
    Parallelism,
    ResourceLimits,
    Restarts,
)
from brain.types.resources import Resources
from brain.types.roles import WORKER, RoleSize, is_group, ordered
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
from scaler.kubernetes.kinds.quantities import is_accelerator, resources
from scaler.kubernetes.kinds.scaleplan import ScalePlan


def job_document(job: ElasticJob) -> JobDocument:
    """Build Brain's job document of ``job``.

    Raises:
        BadInput: no size satisfies both the fields and the command, or Brain refuses a value; the
        message names field, value and remedy.
    """
    spec, role = job.spec, job.spec.replica_specs[job.scaled]
    launch = launch_in(role.template)
    sizes = bounds(job)
    document = JobDocument(
        name=job.metadata.name,
        project=job.metadata.namespace,
        command=command_of(role.template),
        image=main_container(role.template).get("image"),
        replicas=sizes,
        processes_per_replica=processes(role),
        roles=_roles(job, sizes.min),
        groups={name: each for name, each in _groups(job, sizes.min).items() if is_group(name)},
        resources=reserved(role.template),
        resource_limits=_limits(job),
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
    low, high = launch.nodes or (asked or 1, asked or _most(job, 1) or 1)
    low = role.min_replicas or min(low, role.max_replicas or low)
    if role.min_replicas is None and role.groups and job.status.request is not None:
        # A smaller ``replicas`` is a request, which Brain clamps.
        low = max(low, len(role.groups) + 1)
    high = role.max_replicas or max(high, low)
    most, unit = _most(job, low), unit_of(job, role, launch)
    if not role.groups:
        # Otherwise the largest number of replicas depends on their groups, which plans change.
        high = min(high, most or high)
    if role.min_replicas is None:
        # 31 replicas of unit 4 run as 28, and the other 3 replicas stay warm.
        low = max(low // unit, 1) * unit
    first = -(-low // unit) * unit
    if first > high or (most is not None and first > most):
        raise _impossible(job, low, high, unit)
    start = max(first, min(asked or first, high, most or high) // unit * unit)
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


def _roles(job: ElasticJob, least: int) -> dict[str, RoleSize]:
    """Return the roles of the document, which lack the values that every role has."""
    kind = accelerator(job.template_of())
    found = {name: each for name, each in _groups(job, least).items() if not is_group(name)}
    for name, each in found.items():
        if each.processes_per_replica == 1:
            found[name] = replace(found[name], processes_per_replica=None)
        if each.accelerator == kind:
            found[name] = replace(found[name], accelerator=None)
    return found


def _groups(job: ElasticJob, least: int) -> dict[str, RoleSize]:
    """Return the groups of the object, by name; those that are roles, too.

    Brain keeps the numbers of replicas that a job began with. Later numbers are requests, which
    Brain may have refused, or which may ask for more than the ``least`` size has beside them. So a
    job that has begun has the numbers of its status here, as far as its least size has room.
    """
    found = {name: _group(job, name, group) for name, group in job.groups.items()}
    if not found or job.status.request is None:
        return found
    present = running_sizes(job)
    sizes = {name: present.get(name) or each.replicas for name, each in found.items()}
    fitting = clip_groups(sizes, least - 1)
    return {name: replace(each, replicas=fitting[name]) for name, each in found.items()}


def running_sizes(job: ElasticJob) -> dict[str, int]:
    """Return the desired replicas of each group and of the rest of the scaled role, from the
    status.

    The result is empty if the job has not begun, or should have no replicas.
    """
    for role in job.status.roles if job.status.request is not None else ():
        if role.name == job.scaled and role.desired:
            groups = {one.name: one.desired for one in role.groups if one.name in job.groups}
            if groups.keys() == job.groups.keys():
                return groups | {WORKER: role.desired - sum(groups.values())}
    return {}


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


def _limits(job: ElasticJob) -> ResourceLimits:
    """Return the part of ``resourceLimits`` that the other roles leave to the scaled one."""
    limits = job.spec.resource_limits
    if not limits:
        return ResourceLimits()
    others = Resources()
    for name, spec in job.spec.replica_specs.items():
        if name not in (job.scaled, ReplicaType.MASTER):
            others = others + reserved(spec.template).times(spec.replicas)
    left = resources(limits, "spec.resourceLimits") - others
    return ResourceLimits(
        cpu_millis=max(0, left.cpu_millis) if "cpu" in limits else None,
        memory_bytes=max(0, left.memory_bytes) if "memory" in limits else None,
        gpus=max(0, left.gpus) if any(map(is_accelerator, limits)) else None,
    )


def _most(job: ElasticJob, least: int) -> int | None:
    """Return the number of replicas that fits ``resourceLimits`` beside the other roles and the
    groups' own replicas; None if any does.
    """
    one = reserved(job.spec.replica_specs[job.scaled].template)
    size = Allocation(replicas=1, resources=one, roles=ordered(_groups(job, least)))
    return _limits(job).most(size)


def _impossible(job: ElasticJob, low: int, high: int, unit: int) -> ImpossibleBounds:
    path = f"spec.replicaSpecs.{job.scaled}"
    most = _most(job, low)
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
    """Return a sentence for each request of a spec that has no effect, for the condition Honoured.

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
    """Return a sentence for each request of an accepted plan that has no effect.

    The requested size is not checked. ``scaled`` is the role whose size plans change.
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
            "spec.migratePods is set together with a new size, but one plan either changes a "
            "size or moves pods; create a plan for each"
        )
    return tuple(found)
