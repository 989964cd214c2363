"""Nodes that count as a pool's capacity, and those that do not: deleted, not ready, or tainted."""

from datetime import UTC, datetime
from typing import Any

import pytest

from brain import calls
from brain.types.record import Role
from scaler.adapters.backend import ForeignBackend
from scaler.kubernetes.operator.jobs import JOB
from scaler.kubernetes.pods import places
from scaler.kubernetes.runtime.cluster import NODE
from tests.kubernetes import jobs
from tests.kubernetes.clusters import only_emulated
from tests.kubernetes.kubelet import node
from tests.kubernetes.operating import Place, Stage, until
from tests.scaler.listing import ListedJobs

pytestmark = only_emulated("the nodes of a real cluster are not ours to delete")

CONTROL_PLANE = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
TEAM = {"key": "team", "value": "a", "effect": "NoSchedule"}
GPU = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
BEARS = [{"key": "team", "operator": "Equal", "value": "a"}]


def room(place: Place) -> dict[str, bool]:
    """Whether each node takes pods, as the operator tells Brain."""
    now = datetime.now(UTC)
    return {each.name: each.schedulable for each in place.operator.backend.nodes(now)}


def test_a_deleted_node_is_no_capacity_after_a_minute(stage: Stage, place: Place):
    stage.kubelet.add_nodes("spot", cpu="500")
    until("the operator sees it", lambda: "spot" in room(place))

    def report() -> tuple[int, bool]:
        """What Brain has of the pool once the operator has told what there is."""
        with place.api.client(Role.SCALER) as scaler, place.api.client() as admin:
            for each in place.operator.backend.nodes(place.api.now):
                scaler.send(calls.put_node(each))
            ready = {each.name: each.ready for each in admin.send(calls.nodes()).items}
            pool = admin.send(calls.pool("kubernetes"))
            return pool.capacity.cpu_millis, ready["spot"]

    assert report() == (532_000, True)
    stage.kubelet.remove_node("spot")
    until("the operator sees that it is gone", lambda: "spot" not in room(place))

    place.api.pass_time(seconds=30)
    assert report() == (532_000, True)
    place.api.pass_time(seconds=30)
    assert report() == (32_000, False)


def test_a_tainted_node_is_room_while_a_job_bears_its_taint(stage: Stage, place: Place):
    stage.kubelet.add_nodes("control", taints=[CONTROL_PLANE])
    stage.kubelet.add_nodes("theirs", taints=[TEAM])
    until("the operator sees them", lambda: {"control", "theirs"} <= room(place).keys())
    assert room(place) == {"n0": True, "n1": True, "control": False, "theirs": False}

    made = jobs.job("torchrun", "t.py")
    template = made["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
    template["tolerations"] = BEARS
    place.apply(made)
    until("a job bears it", lambda: room(place)["theirs"])
    assert not room(place)["control"]

    place.cluster.delete(JOB, place.namespace, made["metadata"]["name"])
    until("no job bears it", lambda: not room(place)["theirs"])
    stage.kubelet.remove_node("control")
    stage.kubelet.remove_node("theirs")


def test_an_adapter_tells_nodes_that_take_no_pods(stage: Stage, place: Place):
    stage.kubelet.add_nodes("silent", "control")
    stage.kubelet.lose_node("silent")
    place.cluster.merge(NODE, "", "control", {"spec": {"taints": [CONTROL_PLANE]}})

    adapter = ForeignBackend(place.cluster, [], ListedJobs(place.cluster, [place.namespace]))

    found = {each.name: each.schedulable for each in adapter.nodes(datetime.now(UTC))}
    assert found == {"n0": True, "n1": True, "silent": False, "control": False}
    stage.kubelet.remove_node("silent")
    stage.kubelet.remove_node("control")


@pytest.mark.parametrize(
    ("taints", "gpus", "takes"),
    [
        ([], 0, True),
        ([CONTROL_PLANE], 0, False),
        ([{**CONTROL_PLANE, "effect": "NoExecute"}], 0, False),
        ([{**TEAM, "effect": "PreferNoSchedule"}], 0, True),
        ([GPU], 8, True),
        ([GPU], 0, False),
        ([GPU, TEAM], 8, False),
        ([{"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}], 0, True),
    ],
)
def test_a_node_takes_pods_unless_a_taint_keeps_off_those_it_is_for(
    taints: list[Any], gpus: int, takes: bool
):
    assert places.usable(node("n", gpus=gpus, taints=taints)) is takes


def test_one_template_must_bear_every_taint_of_a_node():
    made = node("n", taints=[TEAM, CONTROL_PLANE])
    both = [*BEARS, {"key": CONTROL_PLANE["key"], "operator": "Exists"}]

    assert not places.usable(made, [BEARS, both[1:]])
    assert places.usable(made, [both])


def test_a_job_that_has_ended_bears_nothing():
    made = {"spec": {"replicaSpecs": {"worker": {"template": {"spec": {"tolerations": BEARS}}}}}}
    assert len(places.tolerations_in(made)) == 1
    assert (
        places.tolerations_in({**made, "status": {"completionTime": "2026-01-01T00:00:00Z"}}) == ()
    )
