"""What the server makes of a pod: defaults, what admission adds, what may change later."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.objects.errors import Cause, bad_request
from tests.kubernetes.apiserver.objects.names import generated, label_causes
from tests.kubernetes.apiserver.objects.quantities import canonical, parsed

TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"

_SPEC_DEFAULTS: Json = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}
_EVICTED_AFTER_SECONDS = 300


def _quantities(quantities: Mapping[str, Any], where: str) -> Json:
    try:
        return {name: canonical(value) for name, value in quantities.items()}
    except ValueError as error:
        raise bad_request(
            f'Pod in version "v1" cannot be handled as a Pod: {where}: {error}'
        ) from error


def _container(container: Mapping[str, Any]) -> Json:
    resources = dict(container.get("resources") or {})
    for name in ("limits", "requests"):
        if resources.get(name):
            resources[name] = _quantities(resources[name], f"resources.{name}")
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **resources.get("requests", {})}
    tag = str(container.get("image", "")).rpartition("/")[2].partition(":")[2] or "latest"
    result = {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always" if tag == "latest" else "IfNotPresent",
        **container,
        "resources": resources,
    }
    if container.get("ports"):
        result["ports"] = [{"protocol": "TCP", **port} for port in container["ports"]]
    if container.get("env"):
        result["env"] = [_variable(variable) for variable in container["env"]]
    return result


def _variable(variable: Json) -> Json:
    source = variable.get("valueFrom") or {}
    if "fieldRef" not in source:
        return variable
    reference = {"apiVersion": "v1", **source["fieldRef"]}
    return {**variable, "valueFrom": {**source, "fieldRef": reference}}


def _volume(volume: Json) -> Json:
    for source in ("secret", "configMap", "projected", "downwardAPI"):
        if source in volume:
            return {**volume, source: {"defaultMode": 420, **volume[source]}}
    return volume


def spec_defaulted(spec: Mapping[str, Any]) -> Json:
    """Return a pod's spec with the defaults of its kind."""
    result = {**_SPEC_DEFAULTS, **spec}
    for name in ("containers", "initContainers"):
        if spec.get(name):
            result[name] = [_container(container) for container in spec[name]]
    if spec.get("volumes"):
        result["volumes"] = [_volume(volume) for volume in spec["volumes"]]
    if spec.get("serviceAccountName"):
        result["serviceAccount"] = spec["serviceAccountName"]
    return result


def status_defaulted(status: Mapping[str, Any]) -> Json:
    """Return a pod's status as its kind spells it: conditions always tell their times."""
    result, times = dict(status), {"lastProbeTime": None, "lastTransitionTime": None}
    if status.get("conditions"):
        result["conditions"] = [{**times, **condition} for condition in status["conditions"]]
    for name in ("containerStatuses", "initContainerStatuses"):
        if status.get(name):
            result[name] = [{"state": {}, "lastState": {}, **one} for one in status[name]]
    return result


def admitted(pod: Json, priority_of: Callable[[str], tuple[int, str]]) -> Json:
    """Return a new pod as admission leaves it; ``priority_of``: class -> (value, preemption)."""
    spec = dict(pod["spec"])
    spec.setdefault("serviceAccountName", "default")
    spec["serviceAccount"] = spec["serviceAccountName"]
    value, preemption = priority_of(spec.get("priorityClassName", ""))
    spec.setdefault("priority", value)
    spec.setdefault("preemptionPolicy", preemption)
    spec = tolerant(spec)
    if spec.get("automountServiceAccountToken", True):
        _mount_token(spec)
    conditions = []
    if spec.get("schedulingGates"):
        conditions = [
            {
                "type": "PodScheduled",
                "observedGeneration": 1,
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": None,
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
    status = {"phase": "Pending", "qosClass": quality(spec)}
    return {
        **pod,
        "spec": spec,
        "status": {**status, "conditions": conditions} if conditions else status,
    }


def tolerant(spec: Json) -> Json:
    """Return a pod's spec that bears a lost node for a while, as admission leaves every write."""
    return {**spec, "tolerations": _tolerations(spec.get("tolerations") or [])}


def _tolerates(toleration: Json, key: str) -> bool:
    return (
        toleration.get("key") in (key, None)
        and toleration.get("operator") == "Exists"
        and toleration.get("effect") in ("NoExecute", None)
    )


def _tolerations(tolerations: list[Json]) -> list[Json]:
    result = list(tolerations)
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(_tolerates(one, key) for one in tolerations):
            result.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _EVICTED_AFTER_SECONDS,
                }
            )
    return result


def _mount_token(spec: Json) -> None:
    name = generated("kube-api-access-")
    mount = {"name": name, "readOnly": True, "mountPath": TOKEN_PATH}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        _config("kube-root-ca.crt", "ca.crt"),
        {
            "downwardAPI": {
                "items": [
                    {
                        "path": "namespace",
                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                    }
                ]
            }
        },
        _config("openshift-service-ca.crt", "service-ca.crt"),
    ]
    volume = {"name": name, "projected": {"sources": sources, "defaultMode": 420}}
    spec["volumes"] = [*(spec.get("volumes") or ()), volume]
    for kind in ("containers", "initContainers"):
        if spec.get(kind):
            spec[kind] = [_mounted(container, mount) for container in spec[kind]]


def _config(name: str, key: str) -> Json:
    return {"configMap": {"name": name, "items": [{"key": key, "path": key}]}}


def _mounted(container: Json, mount: Json) -> Json:
    mounts = container.get("volumeMounts") or []
    if any(one["mountPath"] == mount["mountPath"] for one in mounts):
        return container
    return {**container, "volumeMounts": [*mounts, mount]}


def quality(spec: Mapping[str, Any]) -> str:
    """Return the pod's quality of service."""
    every = [*spec["containers"], *(spec.get("initContainers") or ())]
    bounded = [
        {k: v for k, v in (one.get("resources") or {}).items() if k in ("limits", "requests")}
        for one in every
    ]
    if not any((one.get("limits") or one.get("requests")) for one in bounded):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= (one.get("limits") or {}).keys()
        and all(
            parsed((one.get("requests") or {}).get(name, one["limits"][name]))
            == parsed(one["limits"][name])
            for name in ("cpu", "memory")
        )
        for one in bounded
    )
    return "Guaranteed" if guaranteed else "Burstable"


def causes(pod: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield what is wrong with a new pod."""
    spec = pod.get("spec") or {}
    if not spec.get("containers"):
        yield Cause("FieldValueRequired", "Required value", "spec.containers")
    for name in ("hostname", "subdomain"):
        yield from label_causes(f"spec.{name}", spec.get(name) or "")
    seen: set[str] = set()
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    for kind in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(kind) or ()):
            where = f"spec.{kind}[{i}]"
            name = container.get("name")
            if not name:
                yield Cause("FieldValueRequired", "Required value", f"{where}.name")
            elif name in seen:
                yield Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', f"{where}.name")
            seen.add(name)
            if not container.get("image"):
                yield Cause("FieldValueRequired", "Required value", f"{where}.image")
            for j, mount in enumerate(container.get("volumeMounts") or ()):
                if mount.get("name") not in volumes:
                    field = f"{where}.volumeMounts[{j}].name"
                    yield Cause("FieldValueNotFound", f'Not found: "{mount.get("name")}"', field)
            yield from request_causes(container.get("resources") or {}, where)
            yield from _policy_causes(spec, container, where)


def _policy_causes(
    spec: Mapping[str, Any], container: Mapping[str, Any], where: str
) -> Iterator[Cause]:
    policies = {policy.get("restartPolicy") for policy in container.get("resizePolicy") or ()}
    ends = spec.get("restartPolicy") == "Never" and container in spec["containers"]
    if ends and "RestartContainer" in policies:
        message = (
            "Invalid value: \"RestartContainer\": must be 'NotRequired' when pod `restartPolicy` "
            "is 'Never'"
        )
        yield Cause("FieldValueInvalid", message, f"{where}.resizePolicy")


def _extended(name: str) -> bool:
    """Whether a resource is one that nodes tell of and that nobody gets more of than reserved."""
    prefix = name.rpartition("/")[0]
    return bool(prefix) and prefix != "kubernetes.io" and not prefix.endswith(".kubernetes.io")


def request_causes(resources: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield what is wrong with the amounts of a container."""
    limits = resources.get("limits") or {}
    for part in ("limits", "requests"):
        for name, amount in (resources.get(part) or {}).items():
            if parsed(amount) < 0:
                message = f'Invalid value: "{amount}": must be greater than or equal to 0'
                yield Cause("FieldValueInvalid", message, f"{where}.resources.{part}[{name}]")
    for name, wanted in (resources.get("requests") or {}).items():
        if name not in limits and _extended(name):
            message = "Required value: Limit must be set for non overcommitable resources"
            yield Cause("FieldValueRequired", message, f"{where}.resources.limits")
        if name in limits and parsed(wanted) > parsed(limits[name]):
            message = (
                f'Invalid value: "{wanted}": must be less than or equal to {name} limit of '
                f"{limits[name]}"
            )
            yield Cause("FieldValueInvalid", message, f"{where}.resources.requests")


def _frozen(spec: Mapping[str, Any], gated: bool) -> Json:
    """Return what of a pod's spec never changes."""
    loose = ["tolerations", "activeDeadlineSeconds", "schedulingGates"]
    loose += ["nodeSelector", "affinity"] if gated else []
    result = {key: value for key, value in spec.items() if key not in loose}
    for kind in ("containers", "initContainers"):
        if kind in spec:
            result[kind] = [
                {key: value for key, value in one.items() if key != "image"} for one in spec[kind]
            ]
    return result


def change_causes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield what an update may not do to a pod."""
    before, after = old["spec"], new["spec"]
    gates = [gate["name"] for gate in before.get("schedulingGates") or ()]
    added = [g["name"] for g in after.get("schedulingGates") or () if g["name"] not in gates]
    if added:
        message = "Forbidden: only deletion is allowed, but found new scheduling gate "
        yield Cause("FieldValueForbidden", f"{message}'{added[0]}'", "spec.schedulingGates")
    if _frozen(before, bool(gates)) != _frozen(after, bool(gates)):
        message = (
            "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
            "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to "
            "be set to 1 if it was previously negative)"
        )
        yield Cause("FieldValueForbidden", message, "spec")


def grace_seconds(pod: Mapping[str, Any], asked: int | None) -> int:
    """Return how long a deleted pod may still run; 0: it goes at once."""
    finished = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    if finished or not pod["spec"].get("nodeName"):
        return 0
    return pod["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked
