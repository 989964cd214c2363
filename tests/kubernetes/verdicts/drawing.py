"""Random clusters: nodes, pods that are there, and a gang of our operator's that wants in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any

from brain.types.job import JobId
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.pods.manifest import AgentInjection, manifest
from scaler.kubernetes.pods.orders import Installation, order, past
from tests.scaler.wished import wish

Json = dict[str, Any]
HOME, OTHER = "brain-verdicts-home", "brain-verdicts-other"
#: A RuntimeClass and what it adds to its pods; a PriorityClass that preempts nobody.
RUNTIME, OVERHEAD = "brain-verdicts-kata", {"cpu": "250m", "memory": "120Mi"}
PRIORITY = "brain-verdicts-high"
ZONE, POOL, HOST = "topology.kubernetes.io/zone", "pool", "kubernetes.io/hostname"
TIER, TEAM = "tier", "team"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NODE = "node.kubernetes.io"
_TAINTS: Sequence[Json] = (
    {"key": "team", "value": "a", "effect": "NoSchedule"},
    {"key": "team", "value": "b", "effect": "NoExecute"},
    {"key": "team", "effect": "NoSchedule"},
    {"key": "spot", "effect": "PreferNoSchedule"},
    {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
)
_TOLERATIONS: Sequence[Json] = (
    {"operator": "Exists"},
    {"operator": "Exists", "effect": "NoExecute"},
    {"key": "team", "operator": "Exists"},
    {"key": "team", "value": "a", "effect": "NoSchedule"},
    {"key": "team", "operator": "Equal", "value": "b"},
    {"key": "team", "value": "b", "effect": "NoExecute", "tolerationSeconds": 60},
    {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    {"key": f"{_NODE}/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
    {"key": f"{_NODE}/unreachable", "operator": "Exists"},
    {"key": f"{_NODE}/not-ready", "operator": "Exists"},
)
#: What a node lifecycle controller taints a node with whose condition ``Ready`` is so.
_SILENCES = {"False": f"{_NODE}/not-ready", "Unknown": f"{_NODE}/unreachable"}
_AGENT = Installation(injection=AgentInjection(image="brain:1"), brain_url="http://brain:8080")
_UID = "5f0c8f6e-6f4b-4a53-9a53-1d8f3e9a0c11"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnCluster:
    """One cluster, as it is created."""

    nodes: Sequence[Json]
    #: Pods that have a node.
    others: Sequence[Json]
    #: Pods that want one, alike but for their names; no gate of ours holds them.
    gang: Sequence[Json]


def drawn(seed: int, number: int) -> DrawnCluster:
    """Draw a cluster; no two numbers share the name of a node or pod."""
    draw = Random(f"{seed}/{number}")
    nodes = [_node(draw, f"v{number}-n{each}") for each in range(draw.randint(2, 6))]
    names = [node["metadata"]["name"] for node in nodes]
    others = [
        _other(draw, f"v{number}-o{each}", draw.choice(names))
        for each in range(draw.choice([0, 1, 2, 3, 4, 6]))
    ]
    return DrawnCluster(nodes=nodes, others=others, gang=_gang(draw, f"v{number}", names))


def _often(draw: Random, share: float) -> bool:
    return draw.random() < share


def _node(draw: Random, name: str) -> Json:
    labels = {HOST: name, POOL: draw.choice("xy")}
    labels["slots"] = draw.choice(["1", "3", "5", "9", "007", "1_0", "many"])
    if _often(draw, 0.85):
        labels[ZONE] = draw.choice("pq")
    allocatable = {
        "cpu": draw.choice(["2", "7900m", "16", "16"]),
        "memory": draw.choice(["4Gi", "15999Mi", "64Gi", "64Gi"]),
        "pods": draw.choice(["3", "110", "110", "110"]),
        "ephemeral-storage": draw.choice(["10Gi", "100Gi", "100Gi"]),
    }
    if gpus := draw.choice([0, 8, 8, 8]):
        allocatable["nvidia.com/gpu"] = str(gpus)
    if _often(draw, 0.8):
        allocatable["example.com/nic"] = draw.choice(["1", "4", "4"])
    taints = [dict(draw.choice(_TAINTS))] if _often(draw, 0.2) else []
    spec: Json = {}
    if _often(draw, 0.08):
        spec["unschedulable"] = True
        taints.append({"key": f"{_NODE}/unschedulable", "effect": "NoSchedule"})
    ready = draw.choice(["False", "Unknown"]) if _often(draw, 0.08) else "True"
    if key := _SILENCES.get(ready):
        effects = draw.choice([["NoSchedule"], ["NoSchedule", "NoExecute"]])
        taints += [{"key": key, "effect": effect} for effect in effects]
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {**spec, "taints": taints},
        "status": {
            "capacity": allocatable,
            "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": ready, "reason": "Drawn"}],
        },
    }


def _other(draw: Random, name: str, node: str) -> Json:
    spec = _spec(draw, gpus=[0, 0, 0, 2, 4])
    # Where a controller evicts from tainted nodes, it stays.
    spec |= {"nodeName": node, "tolerations": [{"operator": "Exists"}]}
    spec["affinity"] = {"podAntiAffinity": _between(draw)} if _often(draw, 0.15) else {}
    if _often(draw, 0.1):
        spec["hostNetwork"] = True
        spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    labels = {TIER: draw.choice(["web", "cache", "gang"]), TEAM: draw.choice("ab")}
    metadata: Json = {"name": name, "namespace": draw.choice([HOME, HOME, OTHER]), "labels": labels}
    made: Json = {"metadata": metadata, "spec": spec}
    fate = draw.random()
    if fate < 0.1:
        made["status"] = {"phase": draw.choice(["Succeeded", "Failed"])}
    elif fate < 0.2:
        # Told to go, and its kubelet has not let it yet.
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return made


def _gang(draw: Random, name: str, nodes: Sequence[str]) -> Sequence[Json]:
    spec = _spec(draw, gpus=[0, 1, 1, 2, 4, 8])
    spec["tolerations"] = [
        dict(draw.choice(_TOLERATIONS)) for _ in range(draw.choice([0, 0, 1, 2]))
    ]
    spec["affinity"] = _affinity(draw, nodes)
    if _often(draw, 0.1):
        spec["nodeSelector"] = {POOL: draw.choice("xy")}
    if _often(draw, 0.2):
        spec["topologySpreadConstraints"] = _spread(draw)
    size = draw.randint(1, 8)
    role = {"template": {"spec": spec}, "replicas": size, "minReplicas": size, "maxReplicas": size}
    metadata = {
        "name": name,
        "namespace": HOME,
        "uid": _UID,
        "labels": {TIER: "gang", TEAM: draw.choice("ab")},
    }
    obj = {"metadata": metadata, "spec": {"replicaSpecs": {"worker": role}}}
    job = read_elastic_job(
        {"apiVersion": "elastic.iml.github.io/v1alpha1", "kind": "ElasticJob"} | obj
    )
    wished, pods = wish(size, job=JobId(_UID)), list[Json]()
    now = datetime(2026, 1, 1, tzinfo=UTC)
    for id in range(size):
        pod = manifest(order(job, wished, id, past(pods), _AGENT, now=now))
        pod["spec"].pop("schedulingGates", None)
        # Whoever collects garbage finds no owner.
        pods.append({**pod, "metadata": {**pod["metadata"], "ownerReferences": []}})
    return pods


def _spec(draw: Random, gpus: Sequence[int]) -> Json:
    """Containers and what else a pod takes of its node."""
    inits = [
        _container(draw, f"i{number}", **({"restartPolicy": "Always"} if _often(draw, 0.4) else {}))
        for number in range(draw.choice([0, 0, 0, 1, 2]))
    ]
    main = _container(draw, "main", gpus=draw.choice(gpus), command=["torchrun", "t.py"])
    beside = [_container(draw, "beside")] if _often(draw, 0.1) else []
    spec: Json = {"containers": [main, *beside], "initContainers": inits}
    if _often(draw, 0.15):
        spec |= {"runtimeClassName": RUNTIME, "overhead": OVERHEAD}
    if _often(draw, 0.06):
        spec["resources"] = {"requests": {"cpu": "6", "memory": "7Gi"}}
    if _often(draw, 0.1):
        spec["priorityClassName"] = PRIORITY
    if _often(draw, 0.15):
        # A sidecar's ports are held as well; those of an ordinary init container are not.
        owner = draw.choice([main, main, *inits])
        port = {"containerPort": 80, "hostPort": draw.choice([80, 80, 443])}
        port |= draw.choice([{}, {}, {"protocol": "UDP"}, {"hostIP": "10.0.0.1"}])
        owner["ports"] = [port | draw.choice([{}, {}, {}, {"hostIP": "10.0.0.2"}])]
    return spec


def _container(draw: Random, name: str, gpus: int = 0, **more: Any) -> Json:
    requests = {
        "cpu": draw.choice(["100m", "100m", "0.3", "1", "1500m"]),
        "memory": draw.choice(["128Mi", "128Mi", "0.5Gi", "1G"]),
    }
    if _often(draw, 0.1):
        requests["ephemeral-storage"] = draw.choice(["1Gi", "1Gi", "6Gi"])
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    if _often(draw, 0.07):
        limits["example.com/nic"] = "1"
    return {
        "name": name,
        "image": "x",
        "resources": {"requests": requests, "limits": limits},
        **more,
    }


def _expression(draw: Random) -> Json:
    return draw.choice(
        [
            {"key": POOL, "operator": "In", "values": ["x", "z"]},
            {"key": POOL, "operator": "NotIn", "values": ["y"]},
            {"key": ZONE, "operator": "NotIn", "values": ["p"]},
            {"key": ZONE, "operator": "Exists"},
            {"key": ZONE, "operator": "DoesNotExist"},
            {"key": "slots", "operator": "Gt", "values": ["3"]},
            {"key": "slots", "operator": "Lt", "values": ["7"]},
            {"key": POOL, "operator": "Gt", "values": ["1"]},
        ]
    )


def _affinity(draw: Random, nodes: Sequence[str]) -> Json:
    made: Json = {}
    if _often(draw, 0.25):
        terms: list[Json] = [
            {"matchExpressions": [_expression(draw) for _ in range(draw.choice([0, 1, 1, 2]))]}
            for _ in range(draw.randint(1, 2))
        ]
        if _often(draw, 0.3):
            operator, name = draw.choice(["In", "NotIn", "NotIn"]), draw.choice(nodes)
            field = {"key": "metadata.name", "operator": operator, "values": [name]}
            terms[0]["matchFields"] = [field]
        made["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": terms}}
    if _often(draw, 0.1):
        liked = {"weight": 7, "preference": {"matchExpressions": [_expression(draw)]}}
        made["nodeAffinity"] = {**made.get("nodeAffinity", {}), _PREFERRED: [liked]}
    for kind in ("podAffinity", "podAntiAffinity"):
        if _often(draw, 0.13):
            made[kind] = _between(draw)
    return made


def _between(draw: Random) -> Json:
    """Affinity, or anti-affinity, to other pods."""
    made: Json = {_REQUIRED: [_term(draw) for _ in range(draw.choice([1, 1, 2]))]}
    return (
        made
        if _often(draw, 0.85)
        else {_PREFERRED: [{"weight": 3, "podAffinityTerm": _term(draw)}]}
    )


def _term(draw: Random) -> Json:
    spaces: Mapping[str, Any] = draw.choice(
        [
            {},
            {},
            {},
            {"namespaces": [OTHER]},
            {"namespaceSelector": {}},
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": OTHER}}},
        ]
    )
    key = draw.choice([ZONE, HOST, HOST, POOL])
    alike = {"matchLabelKeys": [TEAM]} if _often(draw, 0.1) else {}
    return {"labelSelector": _selector(draw), "topologyKey": key, **spaces, **alike}


def _selector(draw: Random) -> Json:
    return draw.choice(
        [
            {"matchLabels": {TIER: "gang"}},
            {"matchLabels": {TIER: "gang"}},
            {"matchLabels": {TIER: "web"}},
            {"matchExpressions": [{"key": TIER, "operator": "In", "values": ["gang", "cache"]}]},
            {"matchExpressions": [{"key": TIER, "operator": "NotIn", "values": ["web"]}]},
            {"matchExpressions": [{"key": TIER, "operator": "Exists"}]},
            {},
        ]
    )


def _spread(draw: Random) -> Sequence[Json]:
    """Constraints on how pods spread, of one key or two."""
    keys = draw.choice([[ZONE], [HOST], [POOL], [ZONE, HOST]])
    made = []
    for key in keys:
        must = _often(draw, 0.8)
        one = {"maxSkew": draw.choice([1, 1, 2]), "topologyKey": key}
        one |= {"whenUnsatisfiable": "DoNotSchedule" if must else "ScheduleAnyway"}
        one["labelSelector"] = _selector(draw)
        if must and _often(draw, 0.25):
            one["minDomains"] = draw.choice([2, 3])
        if _often(draw, 0.2):
            one["nodeTaintsPolicy"] = draw.choice(["Honor", "Ignore"])
        if _often(draw, 0.2):
            one["nodeAffinityPolicy"] = draw.choice(["Honor", "Ignore"])
        if _often(draw, 0.1):
            one["matchLabelKeys"] = [TEAM]
        made.append(one)
    return made
