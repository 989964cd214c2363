"""Finds errors in an object that the schema accepts; each message has field, value and remedy."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from brain.errors import BadInput, ImpossibleBounds
from brain.types.roles import GROUP_NAME
from scaler.kubernetes.kinds.elasticjob import ElasticJob, ReplicaSpec, ReplicaType
from scaler.kubernetes.kinds.quantities import is_accelerator, quantity
from scaler.kubernetes.kinds.scaleplan import JOB_LABEL, PodMeta, ScalePlan
from scaler.kubernetes.runtime.cluster.nesting import MOST_LEVELS, deeper

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SHARE = re.compile(r"0?\.[0-9]+|1(\.0*)?|0(\.0*)?")


def check_job(job: ElasticJob) -> None:
    """Refuse a job that can never run.

    Raises:
        BadInput: the message names the field, the value and the remedy.
    """
    _check_name(job.metadata.name)
    roles = job.spec.replica_specs
    if not any(role != ReplicaType.MASTER for role in roles):
        raise BadInput(
            "spec.replicaSpecs has no role that trains; add worker", field="spec.replicaSpecs"
        )
    for role, spec in roles.items():
        path = f"spec.replicaSpecs.{role}"
        _check_role(role, path)
        if role != ReplicaType.MASTER:
            _check_bounds(spec, path)
            _check_priority(spec, path)
            check_template(spec.template, f"{path}.template")
            _check_groups(job, role, spec)
    for name, amount in job.spec.resource_limits.items():
        quantity(amount, f"spec.resourceLimits.{name}")


def check_plan(plan: ScalePlan) -> None:
    """Refuse a plan that requests nothing.

    Raises:
        BadInput: the message names the field, the value and the remedy.
    """
    spec = plan.spec
    if not plan.job:
        raise BadInput(
            f"spec.ownerJob is empty and there is no label {JOB_LABEL}; name the ElasticJob",
            field="spec.ownerJob",
        )
    if not any((spec.replica_resource_specs, *_groups(plan).values(), spec.ps_hosts)):
        raise BadInput(
            "spec changes nothing; give replicaResourceSpecs.worker.replicas", field="spec"
        )
    for role, wanted in spec.replica_resource_specs.items():
        path = f"spec.replicaResourceSpecs.{role}"
        # Any other name may be a group of the job.
        if not re.fullmatch(GROUP_NAME, role):
            _check_role(role, path)
        if wanted.replicas is None and not wanted.resource:
            raise BadInput(f"{path} changes nothing; give replicas or resource", field=path)
        for name, amount in wanted.resource.items():
            quantity(amount, f"{path}.resource.{name}")
    for path, pod in _pods(plan):
        _check_pod(pod, path)


def check_template(template: Mapping[str, Any] | None, path: str) -> None:
    """Refuse an impossible pod: one without containers or image, or with malformed amounts.

    Raises:
        BadInput: the message names the field, the value and the remedy.
    """
    if deeper(template, MOST_LEVELS):
        raise BadInput(
            f"{path} is nested more than {MOST_LEVELS} levels deep, but no field of a pod is; "
            "remove the deepest fields",
            field=path,
        )
    spec = (template or {}).get("spec") or {}
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    if not isinstance(containers, list) or not containers:
        raise BadInput(
            f"{path}.spec.containers is empty; give a container with name and image",
            field=f"{path}.spec.containers",
        )
    _check_pod_shape(spec, f"{path}.spec")
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or []):
            _check_container(container, f"{path}.spec.{group}.{index}")


def _check_pod_shape(spec: Mapping[str, Any], path: str) -> None:
    """Check the parts of a pod spec to which the operator adds, since the schema allows any
    template.
    """
    for name in ("initContainers", "volumes", "schedulingGates", "tolerations"):
        _check_objects(spec.get(name), f"{path}.{name}")
    _check_labels(spec.get("nodeSelector"), f"{path}.nodeSelector")
    _check_amounts(spec.get("overhead"), f"{path}.overhead")
    _check_resources(spec.get("resources"), f"{path}.resources")
    if not isinstance(spec.get("hostNetwork") or False, bool):
        raise BadInput(
            f"{path}.hostNetwork {spec['hostNetwork']!r} is neither true nor false",
            field=f"{path}.hostNetwork",
        )
    grace, field = spec.get("terminationGracePeriodSeconds"), "terminationGracePeriodSeconds"
    if grace is not None and (isinstance(grace, bool) or not isinstance(grace, int)):
        raise BadInput(
            f"{path}.{field} {grace!r} is not a whole number; write it without quotes",
            field=f"{path}.{field}",
        )
    affinity, path = spec.get("affinity") or {}, f"{path}.affinity"
    _check_mapping(affinity, path)
    for kind in ("nodeAffinity", "podAffinity", "podAntiAffinity"):
        _check_mapping(affinity.get(kind), f"{path}.{kind}")
        where = f"{path}.{kind}.{_REQUIRED}"
        required = (affinity.get(kind) or {}).get(_REQUIRED)
        if kind == "nodeAffinity":
            _check_mapping(required, where)
            where = f"{where}.nodeSelectorTerms"
            required = (required or {}).get("nodeSelectorTerms")
        _check_objects(required, where)
        for index, term in enumerate(required or []):
            _check_term(term, f"{where}.{index}")


def _check_term(term: Mapping[str, Any], path: str) -> None:
    """Check one required term of any kind of affinity."""
    for name in ("matchExpressions", "matchFields"):
        _check_objects(term.get(name), f"{path}.{name}")
    for name in ("labelSelector", "namespaceSelector"):
        selector, where = term.get(name) or {}, f"{path}.{name}"
        _check_mapping(selector, where)
        _check_labels(selector.get("matchLabels"), f"{where}.matchLabels")
        _check_objects(selector.get("matchExpressions"), f"{where}.matchExpressions")
    if not _texts(term.get("namespaces") or []):
        raise BadInput(
            f"{path}.namespaces {term['namespaces']!r} is not a list of names; begin each name "
            "with `- `",
            field=f"{path}.namespaces",
        )
    if not isinstance(term.get("topologyKey", ""), str):
        raise BadInput(
            f"{path}.topologyKey {term['topologyKey']!r} is not a node label; write the "
            "label's name",
            field=f"{path}.topologyKey",
        )


def _check_objects(value: object, path: str) -> None:
    listed = [] if value is None else value
    if not isinstance(listed, list) or not all(isinstance(each, Mapping) for each in listed):
        raise BadInput(
            f"{path} {value!r} is not a list of objects; begin each object with `- `", field=path
        )


def _check_mapping(value: object, path: str) -> None:
    if value is not None and not isinstance(value, Mapping):
        raise BadInput(f"{path} {value!r} is not an object; give fields with values", field=path)


def _check_labels(value: object, path: str) -> None:
    _check_mapping(value, path)
    given: Any = value or {}
    for name, text in given.items():
        if not isinstance(text, str):
            raise BadInput(
                f"{path}.{name} {text!r} is not text; put it in quotes", field=f"{path}.{name}"
            )


def _check_resources(reserved: object, path: str) -> None:
    _check_mapping(reserved, path)
    given: Any = reserved or {}
    for word in ("requests", "limits"):
        _check_amounts(given.get(word), f"{path}.{word}")
    requests, limits = given.get("requests") or {}, given.get("limits") or {}
    for name in requests.keys() & limits.keys():
        field, request = f"{path}.limits.{name}", requests[name]
        if quantity(limits[name], field) < quantity(request, field):
            raise BadInput(
                f"{field} {limits[name]!r} is below the request {request!r}, so no node starts the "
                "pod; raise the limit, or lower the request",
                field=field,
            )


def _check_amounts(amounts: object, path: str) -> None:
    _check_mapping(amounts, path)
    given: Any = amounts or {}
    for name, amount in given.items():
        quantity(amount, f"{path}.{name}")


def _check_container(container: object, path: str) -> None:
    if not isinstance(container, Mapping):
        raise BadInput(
            f"{path} {container!r} is not a container; give its name and image", field=path
        )
    if not isinstance(container.get("image"), str) or not container["image"].strip():
        raise BadInput(
            f"{path}.image of container {container.get('name', '')!r} is missing; "
            "name the image that holds the training script",
            field=f"{path}.image",
        )
    for word in ("command", "args"):
        if not _texts(container.get(word) or []):
            raise BadInput(
                f"{path}.{word} {container[word]!r} is not a list of strings; put each item in "
                "quotes",
                field=f"{path}.{word}",
            )
    for name in ("env", "ports", "volumeMounts"):
        _check_objects(container.get(name), f"{path}.{name}")
    for index, variable in enumerate(container.get("env") or []):
        if not isinstance(variable.get("name"), str) or not variable["name"]:
            raise BadInput(
                f"{path}.env.{index} has no name; write `- name: A` and `value: b`",
                field=f"{path}.env.{index}.name",
            )
    _check_resources(container.get("resources"), f"{path}.resources")


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _check_name(name: str) -> None:
    if not _LABEL.fullmatch(name):
        raise BadInput(
            f"metadata.name {name!r} must have 1 to 63 lower-case letters, digits or `-`, and "
            "begin and end with a letter or digit, because it is part of pod names and labels",
            field="metadata.name",
        )


def _check_role(role: str, path: str) -> None:
    known = [str(each) for each in ReplicaType]
    if role not in known:
        near = get_close_matches(role.lower(), known, n=1)
        hint = f"did you mean {near[0]}?" if near else "rename it"
        raise BadInput(
            f"{path} has the unknown role {role!r}; the roles are {', '.join(known)}; {hint}",
            field=path,
        )


def _check_bounds(spec: ReplicaSpec, path: str) -> None:
    low, high, unit = spec.min_replicas, spec.max_replicas, spec.unit or 1
    if high is None:
        return
    if low is not None and low > high:
        raise ImpossibleBounds(
            f"{path}.minReplicas {low} is more than maxReplicas {high}; raise maxReplicas or lower "
            "minReplicas",
            field=f"{path}.minReplicas",
        )
    first = -(-(low or 1) // unit) * unit
    if first > high:
        raise ImpossibleBounds(
            f"{path}.unit {unit} has no multiple from {low or 1} to {high}; raise maxReplicas to "
            f"{first}",
            field=f"{path}.unit",
        )


def _check_groups(job: ElasticJob, role: str, spec: ReplicaSpec) -> None:
    """Refuse groups that no replica can be started for, or beside which a field means nothing."""
    path = f"spec.replicaSpecs.{role}.groups"
    if not spec.groups:
        return
    others = [name for name in job.spec.replica_specs if name not in (role, ReplicaType.MASTER)]
    if role != ReplicaType.WORKER or others or job.configured_here:
        beside = ", ".join(others) or job.strategy if role == ReplicaType.WORKER else role
        raise BadInput(
            f"{path} cannot be combined with {beside}, whose replicas are alike; leave one of "
            "the two out",
            field=path,
        )
    for name in job.spec.resource_limits:
        if name not in ("cpu", "memory") and not is_accelerator(name):
            raise BadInput(
                f"spec.resourceLimits.{name} cannot limit a job with {path}; limit only cpu, "
                "memory and accelerators",
                field=f"spec.resourceLimits.{name}",
            )
    for name, group in spec.groups.items():
        if name == ReplicaType.WORKER or not re.fullmatch(GROUP_NAME, name):
            raise BadInput(
                f"{path}.{name} is not a name for a group; give up to 63 lower-case letters, "
                f"digits and `-`, and not {ReplicaType.WORKER}",
                field=f"{path}.{name}",
            )
        if group.template is not None:
            check_template(group.template, f"{path}.{name}.template")


def _check_priority(spec: ReplicaSpec, path: str) -> None:
    said = spec.priority or "low"
    named = said in ("high", "low") or _LABEL.fullmatch(said.replace(".", "-"))
    if not named and not _SHARE.fullmatch(said):
        raise BadInput(
            f"{path}.priority {said!r} is not valid; give high, low, a share such as 0.5, or "
            "the name of a PriorityClass",
            field=f"{path}.priority",
        )


def _check_pod(pod: PodMeta, path: str) -> None:
    _check_role(pod.type, f"{path}.type")
    for name, amount in pod.resource.items():
        quantity(amount, f"{path}.resource.{name}")
    if not pod.name and not path.startswith("spec.createPods"):
        raise BadInput(f"{path}.name is empty; name the pod", field=f"{path}.name")


def _pods(plan: ScalePlan) -> Iterator[tuple[str, PodMeta]]:
    for name, pods in _groups(plan).items():
        for index, pod in enumerate(pods):
            yield f"spec.{name}.{index}", pod


def _groups(plan: ScalePlan) -> Mapping[str, tuple[PodMeta, ...]]:
    return {
        "createPods": plan.spec.create_pods,
        "removePods": plan.spec.remove_pods,
        "migratePods": plan.spec.migrate_pods,
    }
