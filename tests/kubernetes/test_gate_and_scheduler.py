"""The operator's gate beside the scheduler, written apart, on random clusters."""

from collections.abc import Mapping
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from scaler.kubernetes.pods import gang
from scaler.kubernetes.pods.fitting import NodeCapacity, infeasible
from scaler.kubernetes.runtime.store import Store
from tests.kubernetes.apiserver.objects.patches import merged
from tests.kubernetes.kubelet import node
from tests.kubernetes.predicates import place_of, requests_of
from tests.kubernetes.scheduling import placed

Json = dict[str, Any]
#: Clusters of one test.
EACH = 50
ZONE, POOL, HOST = "topology.kubernetes.io/zone", "pool", "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TAINTS = (
    {"key": "team", "value": "a", "effect": "NoSchedule"},
    {"key": "team", "value": "b", "effect": "NoExecute"},
    {"key": "spot", "effect": "PreferNoSchedule"},
    {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
)
_TOLERATIONS = (
    {"operator": "Exists"},
    {"key": "team", "operator": "Exists"},
    {"key": "team", "value": "a", "effect": "NoSchedule"},
    {"key": "team", "operator": "Equal", "value": "b"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 300},
)


def a_node(draw: Random, number: int) -> Json:
    labels = {POOL: draw.choice("xy"), "slots": str(draw.randint(1, 9))}
    if draw.random() < 0.8:
        labels[ZONE] = draw.choice("pq")
    taints = [draw.choice(_TAINTS)] if draw.random() < 0.4 else []
    made = node(
        f"n{number}",
        cpu=str(draw.choice([2, 4, 8])),
        gpus=draw.choice([0, 4, 8]),
        labels=labels,
        taints=taints,
    )
    if draw.random() < 0.1:
        made["spec"]["unschedulable"] = True
    return made


def expression(draw: Random) -> Json:
    return draw.choice(
        [
            {"key": POOL, "operator": "In", "values": ["x"]},
            {"key": POOL, "operator": "NotIn", "values": ["y"]},
            {"key": ZONE, "operator": "Exists"},
            {"key": ZONE, "operator": "DoesNotExist"},
            {"key": "slots", "operator": "Gt", "values": ["3"]},
            {"key": "slots", "operator": "Lt", "values": ["7"]},
            {"key": POOL, "operator": "Gt", "values": ["1"]},
        ]
    )


def term(draw: Random) -> Json:
    selector = draw.choice(
        [
            {"matchLabels": {"app": "gang"}},
            {"matchLabels": {"app": "other"}},
            {"matchExpressions": [{"key": "app", "operator": "In", "values": ["gang", "third"]}]},
            {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
        ]
    )
    spaces = draw.choice([{}, {}, {"namespaces": ["team"]}, {"namespaceSelector": {}}])
    return {"labelSelector": selector, "topologyKey": draw.choice([ZONE, HOST, HOST]), **spaces}


def affinity(draw: Random) -> Json:
    made: Json = {}
    if draw.random() < 0.4:
        terms: list[Json] = [
            {"matchExpressions": [expression(draw) for _ in range(draw.randint(0, 2))]}
            for _ in range(draw.randint(1, 2))
        ]
        if draw.random() < 0.2:
            field = {"key": "metadata.name", "operator": "NotIn", "values": ["n0"]}
            terms[0]["matchFields"] = [field]
        made["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": terms}}
    for kind in ("podAffinity", "podAntiAffinity"):
        if draw.random() < 0.25:
            made[kind] = {_REQUIRED: [term(draw) for _ in range(draw.randint(1, 2))]}
    return made


def container(draw: Random, gpus: int = 0, **more: Any) -> Json:
    requests = {"cpu": draw.choice(["100m", "1", "1500m"])}
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    amounts = {"requests": requests, "limits": limits}
    return {"name": "c", "image": "x", "resources": amounts, **more}


def a_pod(draw: Random, app: str) -> Json:
    inits = [
        container(draw, **({"restartPolicy": "Always"} if draw.random() < 0.4 else {}))
        for _ in range(draw.choice([0, 0, 1, 2, 3]))
    ]
    spec: Json = {
        "containers": [container(draw, gpus=draw.choice([0, 2, 4, 8]))],
        "initContainers": inits,
        "affinity": affinity(draw),
        "tolerations": [draw.choice(_TOLERATIONS) for _ in range(draw.choice([0, 0, 1, 2]))],
    }
    if draw.random() < 0.2:
        spec["nodeSelector"] = {POOL: draw.choice("xy")}
    if draw.random() < 0.2:
        spec["overhead"] = {"cpu": "250m"}
    if draw.random() < 0.1:
        spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    return {"metadata": {"namespace": "team", "labels": {"app": app}}, "spec": spec}


def named(pod: Json, name: str, **spec: Any) -> Json:
    made = deepcopy(pod)
    made["metadata"] |= {"name": name, "uid": name}
    made["spec"] |= spec
    return made


class Cluster:
    """Nodes with pods of others on them, and a gang of two to five that waits."""

    def __init__(self, seed: int) -> None:
        draw = Random(seed)
        self.nodes = [a_node(draw, number) for number in range(draw.randint(2, 6))]
        others = [named(a_pod(draw, "other"), f"o{n}") for n in range(draw.randint(0, 4))]
        found = self._scheduled(others, [])
        self.others = [
            named(pod, name, nodeName=found[name])
            for pod in others
            if (name := pod["metadata"]["name"]) in found
        ]
        self.template, self.size = a_pod(draw, "gang"), draw.randint(2, 5)
        gates = [{"name": gang.GATE}]
        self.gang = [named(self.template, f"g{n}", schedulingGates=gates) for n in range(self.size)]

    def admitted(self) -> list[Json]:
        """The pods that the gate lets begin, as they are then."""
        nodes, pods = Store(), Store()
        room = NodeCapacity(nodes, pods)
        for store, objects in ((nodes, self.nodes), (pods, self.others)):
            for each in objects:
                store.put(each)
        capacity = room.capacity(self.gang)
        made = gang.admitted(self.gang, 0, least=self.size, unit=1, capacity=capacity)
        return [merged(dict(pod), gang.opened(pod, made.near)) for pod in made.pods]

    def scheduled(self, pods: list[Json]) -> Mapping[str, str]:
        """Where the scheduler puts them."""
        return self._scheduled(pods, self.others)

    def _scheduled(self, pods: list[Json], there: list[Json]) -> dict[str, str]:
        places = [place_of(each, ()) for each in self.nodes]
        for pod in there:
            place = next(each for each in places if each.name == pod["spec"]["nodeName"])
            place.take(requests_of(pod))
            place.host(pod)
        keyed = [(("team", pod["metadata"]["name"]), pod) for pod in pods]
        return {name: node for (_, name), node in placed(keyed, places).bound.items()}


@pytest.mark.parametrize("part", range(20))
def test_in_none_of_a_thousand_clusters_a_part_of_a_gang_is_let_in(part: int):
    for seed in range(part * EACH, (part + 1) * EACH):
        cluster = Cluster(seed)
        begins = cluster.admitted()

        assert len(cluster.scheduled(begins)) == len(begins) in (0, cluster.size), seed


@pytest.mark.parametrize("part", range(20))
def test_no_gang_waits_that_the_scheduler_would_place_whole(part: int):
    for seed in range(part * EACH, (part + 1) * EACH):
        cluster = Cluster(seed)
        free = [named(pod, pod["metadata"]["name"], schedulingGates=[]) for pod in cluster.gang]

        if len(cluster.scheduled(free)) == cluster.size:
            assert len(cluster.admitted()) == cluster.size, seed


def test_what_never_fits_is_not_let_in_and_both_happen():
    verdicts = [
        (infeasible(cluster.template, cluster.size, cluster.nodes), bool(cluster.admitted()))
        for cluster in map(Cluster, range(200))
    ]

    assert not [never for never, begins in verdicts if never and begins]
    assert sum(begins for _, begins in verdicts) > 20
    assert sum(never is not None for never, _ in verdicts) > 20
