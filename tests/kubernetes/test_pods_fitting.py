"""What fits where, which gangs may begin, and what can never be."""

from collections.abc import Sequence
from typing import Any

import pytest

from brain.errors import BadInput
from scaler.kubernetes.pods import gang, identity, places, ports
from scaler.kubernetes.pods.fitting import NodeCapacity, excess, infeasible
from scaler.kubernetes.pods.placement import Capacity, needs, placed
from scaler.kubernetes.pods.predicates import may_come
from scaler.kubernetes.runtime.store import Store
from tests.kubernetes.kubelet import node as made_node


def node(name: str, gpus: int = 8, **labels: str) -> dict[str, Any]:
    return made_node(name, gpus=gpus, labels=labels)


def spec(gpus: int = 1, **more: Any) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": gpus, "cpu": 1}}
    return {"containers": [{"name": "main", "image": "x", "resources": resources}], **more}


def pod(name: str, where: str | None = None, gpus: int = 8, gate: bool = False) -> dict[str, Any]:
    gates = {"schedulingGates": [{"name": gang.GATE}]} if gate else {}
    placed_at = {"nodeName": where} if where else {}
    return {"metadata": {"name": name}, "spec": {**spec(gpus), **gates, **placed_at}}


def room(
    nodes: Sequence[dict[str, Any]],
    pods: Sequence[dict[str, Any]],
    wanted: Sequence[dict[str, Any]] = (),
) -> Capacity:
    """What is free for ``wanted`` where these are."""
    there, running = Store(), Store()
    found = NodeCapacity(there, running)
    for store, objects in ((there, nodes), (running, pods)):
        for each in objects:
            store.put(each)
    return found.capacity(wanted)


def admitted(waiting: int, begun: int, least: int, free: int, unit: int = 1) -> int:
    """How many of ``waiting`` pods of 8 GPUs begin where ``free`` nodes of 8 are."""
    pods = [pod(f"p{number}", gate=True) for number in range(waiting)]
    nodes = room([node(f"n{number}") for number in range(free)], [])
    return len(gang.admitted(pods, begun, least=least, unit=unit, capacity=nodes).pods)


def test_a_node_has_what_its_pods_leave():
    free = room([node("n0")], [pod("p", "n0", gpus=3)]).free

    assert free["n0"]["nvidia.com/gpu"] == 5


def test_a_gang_that_was_let_in_has_its_room_before_the_scheduler_comes():
    coming = pod("p")
    coming["metadata"]["labels"] = {identity.MANAGED_BY: identity.MANAGER}
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}

    assert room([node("n0")], [coming]).free["n0"]["nvidia.com/gpu"] == 0
    refused = coming | {"status": {"conditions": [told]}}
    for other in (pod("stranger"), pod("gated", gate=True), refused):
        assert room([node("n0")], [other]).free["n0"]["nvidia.com/gpu"] == 8


def of(name: str, app: str, where: str | None = None, **affinity: Any) -> dict[str, Any]:
    """A pod of an application, and the applications that it wants near it, or far from it."""
    made = pod(name, where, gpus=0)
    made["metadata"] |= {"namespace": "team", "labels": {"app": app}}
    made["spec"]["affinity"] = {
        kind: {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": each}}, "topologyKey": "zone"}
            ]
        }
        for kind, each in affinity.items()
    }
    return made


def test_only_pods_that_matter_to_a_gang_are_looked_at_for_each_of_its_pods():
    there = [of(f"s{number}", "web", "n0") for number in range(500)]
    there += [of("cache", "cache", "n0"), of("shy", "web", "n0", podAntiAffinity="digits")]
    there += [of("aloof", "web", "n0", podAntiAffinity="shop")]
    there += [of("digits", "digits", "n0"), of("elsewhere", "digits", "n0")]
    there[-1]["metadata"]["namespace"] = "other"
    gang = [of(f"g{n}", "digits", podAffinity="cache", podAntiAffinity="digits") for n in range(8)]

    looked_at = room([node("n0")], there, gang).pods

    assert [each["metadata"]["name"] for each in looked_at] == ["cache", "shy", "digits"]


class Counted(dict[str, Any]):
    """What is free, and how often somebody went through it."""

    looks = 0

    def items(self) -> Any:
        self.looks += 1
        return super().items()


def near_each_other(count: int, app: str = "digits") -> list[dict[str, Any]]:
    """Pods of a GPU that want to be in the zone of those of an application."""
    pods = [of(f"g{number}", "digits", podAffinity=app) for number in range(count)]
    return [each | {"spec": each["spec"] | spec(1)} for each in pods]


def test_domains_that_hold_no_more_than_one_that_was_tried_are_not_tried():
    nodes = room([node(f"n{number}", zone=f"z{number}") for number in range(40)], [])
    free = Counted(nodes.free)

    found = placed(near_each_other(16), Capacity(nodes=nodes.nodes, free=free))

    assert len(found.nodes) == 8
    assert free.looks < 5


def test_a_domain_that_holds_all_is_tried_before_those_that_cannot():
    pods = [pod(f"p{number}", f"n{number}", gpus=1) for number in range(40)]
    nodes = room([node(f"n{number}", zone=f"z{number}") for number in range(41)], pods)
    free = Counted(nodes.free)

    found = placed(near_each_other(8), Capacity(nodes=nodes.nodes, free=free))

    assert set(found.nodes) == {"n40"}
    assert free.looks < 5


def test_pods_near_those_of_others_may_be_in_each_of_their_domains():
    others = [of("cache0", "cache", "n0"), of("cache1", "cache", "n1")]
    nodes = [node(f"n{number}", zone=f"z{number}") for number in range(3)]
    gang = near_each_other(16, "cache")

    assert len(placed(gang, room(nodes, others, gang)).nodes) == 16


def test_pods_are_placed_on_the_fullest_node_that_has_room():
    free = room([node("n0"), node("n1")], [pod("p", "n0", gpus=6)])

    assert placed([pod("a", gpus=2), pod("b"), pod("c", gpus=1)], free).nodes == ("n0", "n1")


def test_a_silent_node_takes_pods_that_tolerate_an_unreachable_one():
    silent = node("n0")
    silent["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    bears = {
        key: pod("p") | {"spec": spec(tolerations=[{"key": key, "operator": "Exists"}])}
        for key in ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
    }

    assert [may_come(each, silent) for each in bears.values()] == [True, False]


@pytest.mark.parametrize(("said", "takes"), [("10", True), ("1_0", False), ("many", False)])
def test_a_label_is_a_number_only_where_kubernetes_reads_one(said: str, takes: bool):
    expression = {"key": "slots", "operator": "Gt", "values": ["3"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}

    assert may_come(pod("p") | {"spec": spec(affinity=affinity)}, node("n0", slots=said)) is takes


def listening(name: str, sidecar: bool = False, **port: Any) -> dict[str, Any]:
    """A pod that holds port 80 of its host."""
    made = pod(name, gpus=0)
    container = {"name": "c", "image": "x", "ports": [{"hostPort": 80, **port}]}
    if sidecar:
        made["spec"]["initContainers"] = [{**container, "restartPolicy": "Always"}]
    else:
        made["spec"]["containers"].append(container)
    return made


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ({}, {}, False),
        ({}, {"protocol": "UDP"}, True),
        ({}, {"sidecar": True}, False),
        ({}, {"hostIP": "10.0.0.1"}, False),
        ({"hostIP": "10.0.0.1"}, {}, False),
        ({"hostIP": "10.0.0.1"}, {"hostIP": "10.0.0.1"}, False),
        ({"hostIP": "10.0.0.1"}, {"hostIP": "10.0.0.2"}, True),
    ],
)
def test_two_pods_of_one_host_port_fit_a_node_if_their_addresses_or_protocols_differ(
    one: dict[str, Any], other: dict[str, Any], together: bool
):
    pods = [listening("a", **one), listening("b", **other)]

    assert (placed(pods, room([node("n0")], [])).refusals is None) is together


def test_pods_that_spread_wait_for_the_domain_that_has_no_room():
    gang = [of(f"g{number}", "digits") for number in range(2)]
    for each in gang:
        zones = {"labelSelector": {"matchLabels": {"app": "digits"}}, "topologyKey": "zone"}
        each["spec"]["topologySpreadConstraints"] = [
            {**zones, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
        ]
    full = {"status": {"allocatable": {"cpu": "0"}}}
    found = placed(gang, room([node("n0", zone="a"), node("n1", zone="b") | full], [], gang))

    assert (found.nodes, found.refusals) == (
        ("n0",),
        {
            "n0": "is excluded by topologySpreadConstraints of zone",
            "n1": "has too little cpu",
        },
    )


def test_part_of_a_gang_begins_never():
    assert admitted(3, 0, least=3, free=2) == 0
    assert admitted(3, 0, least=3, free=3) == 3


def test_beyond_the_gang_pods_begin_as_there_is_room():
    assert admitted(4, 0, least=2, free=3) == 3
    assert admitted(2, 2, least=2, free=1) == 1


def test_beyond_the_gang_pods_begin_in_units():
    assert admitted(4, 4, least=4, free=3, unit=2) == 2


@pytest.mark.parametrize(
    ("template", "least", "says"),
    [
        (spec(16), 1, "no node that its pod may use has more than 8 nvidia.com/gpu"),
        (spec(8), 3, "the job needs at least 3 replicas, but only 2 fit on the 2 nodes"),
        (spec(1, nodeSelector={"pool": "a100"}), 1, "nodeSelector pool=a100"),
        (spec(8), 2, None),
    ],
)
def test_what_can_never_fit_is_told_in_a_sentence(template: Any, least: int, says: str | None):
    said = infeasible([{"metadata": {}, "spec": template}] * least, [node("n0"), node("n1")])

    assert (said is None) if says is None else says in str(said)


def test_without_nodes_nothing_is_said():
    assert infeasible([pod("p", gpus=16)], []) is None


def test_more_than_the_limits_of_the_job_is_told():
    assert "resourceLimits.gpu" in str(excess(needs(spec(2)), 3, {"gpu": 4}))
    assert excess(needs(spec(2)), 2, {"gpu": 4}) is None


def test_a_nodes_place_is_told_outermost_first():
    labels = {"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/rack": "r 7"}

    assert places.told(labels) == "z1/-/r_7/-"
    assert places.told({}) == ""


def test_cordoned_and_silent_nodes_take_nothing():
    cordoned = node("n0") | {"spec": {"unschedulable": True}}

    assert not places.usable(cordoned)
    assert places.usable(node("n1"))


def test_host_ports_do_not_clash():
    taken = ports.of({"spec": {"containers": [{"ports": [{"hostPort": 20000}]}]}})

    assert ports.choose({int(port) for port in taken}) == 20001
    with pytest.raises(BadInput, match="widen --host-ports"):
        ports.choose({20000}, 20000, 20000)


@pytest.mark.parametrize("said", [{"value": "$(PORT)"}, {"value": ""}, {"valueFrom": {}}, {}])
def test_a_variable_that_is_no_port_stops_no_store_from_taking_its_pod(said: dict[str, Any]):
    container = {"env": [{"name": ports.MASTER, **said}], "ports": [{"hostPort": 20000}]}
    store = Store({"host port": ports.of})

    store.put({"metadata": {"name": "odd"}, "spec": {"containers": [container]}})

    assert store.values("host port") == ["20000"]
