"""Reads the change that a ScalePlan requests. All functions are pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from brain.errors import BadInput
from brain.types.allocation import Allocation
from brain.types.resources import Resources
from brain.views import JobView
from scaler.kubernetes.kinds import ElasticJob, ScalePlan
from scaler.kubernetes.kinds.quantities import is_accelerator, quantity, resources
from scaler.kubernetes.pods.amounts import NAMES, shown
from scaler.kubernetes.pods.fitting import allowed, excess
from scaler.kubernetes.pods.placement import needs


@dataclass(frozen=True, slots=True)
class Wanted:
    """The change that a plan requests."""

    #: Replicas of the group, or of the job.
    replicas: int
    #: Amounts that each replica shall reserve; None: the present ones.
    resources: Resources | None = None
    #: The group; None: the job.
    group: str | None = None

    def met(self, target: Allocation) -> bool:
        """Return True if a plan's target has the requested number of replicas."""
        sizes = {name: size.replicas for name, size in target.roles}
        return self.replicas == (sizes[self.group] if self.group else target.replicas)


def wanted(plan: ScalePlan, job: ElasticJob, view: JobView) -> Wanted:
    """Return the number of replicas and the amounts that a plan requests.

    A plan gives the number of replicas as a total, or names the pods to create and to remove.

    Raises:
        BadInput: plans cannot make the requested change; the message has the remedy.
    """
    spec = plan.spec
    for role in spec.replica_resource_specs:
        if role != job.scaled and role not in job.groups:
            raise BadInput(
                f"spec.replicaResourceSpecs.{role}: plans only resize "
                f"{', '.join((job.scaled, *job.groups))}; edit {role} in the ElasticJob",
                field=f"spec.replicaResourceSpecs.{role}",
            )
    if groups := [name for name in spec.replica_resource_specs if name in job.groups]:
        return _of_group(plan, groups[0], view)
    return Wanted(*_of_all(plan, job, view))


def _of_group(plan: ScalePlan, group: str, view: JobView) -> Wanted:
    """Return the change of one group that a plan asks for."""
    spec, field = plan.spec, f"spec.replicaResourceSpecs.{group}"
    if len(spec.replica_resource_specs) > 1 or spec.create_pods or spec.remove_pods:
        raise BadInput(
            f"{field}: a plan that changes a group can change nothing else; create a plan for "
            "each change",
            field=field,
        )
    known = next((one for one in view.groups if one.name == group), None)
    if known is None:
        raise BadInput(
            f"{field}: Brain knows no group {group} of the job yet; create the plan again later",
            field=field,
        )
    one = spec.replica_resource_specs[group]
    each = _each(one.resource, known.resources, group) if one.resource else None
    size = known.replicas_wished if one.replicas is None else one.replicas
    return Wanted(size, each, group)


def _of_all(plan: ScalePlan, job: ElasticJob, view: JobView) -> tuple[int, Resources | None]:
    spec = plan.spec
    one = spec.replica_resource_specs.get(job.scaled)
    each = _each(one.resource, view.resources, job.scaled) if one and one.resource else None
    if one is not None and one.replicas is not None:
        return one.replicas, each
    created = sum(pod.type == job.scaled for pod in spec.create_pods)
    removed = sum(pod.type == job.scaled for pod in spec.remove_pods)
    if created or removed or each is not None:
        return view.replicas_wished + created - removed, each
    raise BadInput(
        f"spec changes no number of replicas; give replicaResourceSpecs.{job.scaled}.replicas, "
        "or resource with the amounts for each replica",
        field="spec",
    )


def _each(given: Mapping[str, Any], now: Resources, role: str) -> Resources:
    """Return the amounts that each replica shall reserve: the present ones, with changes."""
    path = f"spec.replicaResourceSpecs.{role}.resource"
    for name in given:
        if name not in NAMES and not is_accelerator(name):
            raise BadInput(
                f"{path}.{name}: plans change cpu and memory; edit {name} in the template",
                field=f"{path}.{name}",
            )
    asked = resources(given, path)
    if asked.gpus not in (0, now.gpus):
        raise BadInput(
            f"{path} asks for {asked.gpus} accelerators, but a replica has {now.gpus}; plans "
            "change only cpu and memory, so edit the template",
            field=path,
        )
    return Resources(
        cpu_millis=asked.cpu_millis if "cpu" in given else now.cpu_millis,
        memory_bytes=asked.memory_bytes if "memory" in given else now.memory_bytes,
        gpus=now.gpus,
    )


def check_served(plan: ScalePlan) -> None:
    """Refuse a plan with fields that no plan can carry out.

    Raises:
        BadInput: such a field is set; the message names the field and the remedy.
    """
    spec = plan.spec
    if spec.ps_hosts:
        raise BadInput(
            "spec.psHosts cannot be set, because the operator knows the addresses of the pods; "
            "leave the field out",
            field="spec.psHosts",
        )
    groups = {
        "createPods": spec.create_pods,
        "removePods": spec.remove_pods,
        "migratePods": spec.migrate_pods,
    }
    for group, pods in groups.items():
        for index, pod in enumerate(pods):
            if pod.resource:
                raise BadInput(
                    f"spec.{group}.{index}.resource: all replicas of a role reserve the same "
                    f"amounts; give replicaResourceSpecs.{pod.type}.resource",
                    field=f"spec.{group}.{index}.resource",
                )


def within_limits(asked: Wanted, job: ElasticJob) -> tuple[int, str]:
    """Return the largest size, up to the requested one, that the job's ``resourceLimits`` allow.

    Also return why this size is smaller than the requested one; empty if it is not smaller.

    If the job has groups, Brain applies the limits, because Brain knows the present size of each
    group.
    """
    if job.groups:
        return asked.replicas, ""
    limits, each = job.spec.resource_limits, needs(job.template_of().get("spec") or {})
    if asked.resources is not None:
        each |= {name: quantity(said, name) for name, said in shown(asked.resources).items()}
    why = excess(each, asked.replicas, limits)
    if why is None:
        return asked.replicas, ""
    return min(asked.replicas, allowed(each, limits) or 0), why
