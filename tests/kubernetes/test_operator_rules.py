"""What the operator decides, purely: who is named, what is replaced, what is shown and kept."""

import json
from argparse import Namespace
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from brain.errors import BadInput, Unavailable
from brain.types.job import JobId
from brain.types.world import Cause, Member, World, WorldEvent
from scaler.kubernetes import rigid
from scaler.kubernetes.brain import BrainDoor
from scaler.kubernetes.jobs import Jobs, Rules
from scaler.kubernetes.machinery.store import Store
from scaler.kubernetes.options import operator_options
from scaler.kubernetes.pods import identity
from scaler.kubernetes.pods.orders import House
from scaler.kubernetes.progress import Keeping, collected
from scaler.kubernetes.upkeep import endpoint_of, place_of
from scaler.ports import Phase
from tests.scaler.wished import JOB, NOW, replica


def pod(
    id: int, address: str = "", *, phase: str = "Running", **annotations: str
) -> dict[str, Any]:
    labels = identity.labels("digits", "uid", "worker", id, rank=id, relaunches=0)
    status = {"phase": phase} | ({"podIP": address} if address else {})
    named = {f"{identity.DOMAIN}/{name}": value for name, value in annotations.items()}
    metadata = {"name": f"p{id}", "labels": labels, "annotations": named}
    return {"metadata": metadata, "spec": {"nodeName": "n0"}, "status": status}


def told(endpoint: str) -> str:
    return json.dumps({"endpoint": endpoint})


def test_the_eldest_with_an_address_is_named():
    assert endpoint_of([pod(1, "10.0.0.2"), pod(0), pod(2, "10.0.0.3")]) == "10.0.0.2:29399"
    assert endpoint_of([pod(0)]) == ""


def test_who_was_named_stays_so_while_it_lives():
    pods = [pod(0, "10.0.0.1"), pod(3, "10.0.0.4", place=told("10.0.0.4:29399"))]

    assert endpoint_of(pods) == "10.0.0.4:29399"
    assert endpoint_of([pods[0], pod(3, "10.0.0.4", phase="Failed")]) == "10.0.0.1:29399"


def test_a_pod_is_told_its_nodes_place_and_who_is_gone():
    labels = {"topology.kubernetes.io/zone": "z"}

    assert place_of(pod(0), "e:1", labels, [4, 2]) == {
        "endpoint": "e:1",
        "topology": "z/-/-/-",
        "gone": [2, 4],
    }
    assert place_of(pod(0), "", {}, ()) is None


def world(*replicas: int, ended: bool = False) -> World:
    members = tuple(
        Member(replica=id, group_rank=rank, processes=1, node="n", address="")  # type: ignore[arg-type]
        for rank, id in enumerate(replicas)
    )
    return World(
        job=JOB,
        epoch=3,
        generation=0,
        cause=Cause.START,
        members=members,
        formed_at=NOW,
        ended_at=NOW if ended else None,
    )


def events(known: World | None, *running: int, wished: int = 2) -> list[tuple[WorldEvent, int]]:
    seen = [replica(id, Phase.RUNNING) for id in running]
    told = rigid.reports(JobId(JOB), seen, known, wished=wished, generation=1, processes=1, now=NOW)
    return [(each.event, each.epoch) for each in told]


def test_a_world_is_told_once_all_its_pods_run():
    assert events(None, 0) == []
    assert events(None, 0, 1) == [(WorldEvent.FORMED, 1), (WorldEvent.STEPPING, 1)]
    assert events(world(0, 1), 0, 1) == []


def test_others_in_a_pods_place_are_another_world():
    assert events(world(0, 1), 0, 2)[0] == (WorldEvent.FORMED, 4)
    assert events(world(0, 1, ended=True), 0, 1)[0] == (WorldEvent.FORMED, 4)


def test_a_plan_replaces_pods_that_were_told_another_size():
    pods = [pod(0, generation="0"), pod(1, generation="2"), pod(2, phase="Failed", generation="0")]

    assert [each["metadata"]["name"] for each in rigid.outdated(pods, 2)] == ["p0"]


def plan(name: str, generation: int, age: float) -> dict[str, Any]:
    at = (NOW - timedelta(seconds=age)).isoformat()
    return {"metadata": {"name": name}, "status": {"generation": generation, "finishTime": at}}


class Brain(BrainDoor):
    """A Brain that has two jobs, without a network."""

    def __init__(self, told: Callable[[JobId], None] = lambda job: None) -> None:
        super().__init__(cast(Any, None), "pool", told=told)

    def _all(self) -> dict[JobId, Any]:
        return {JobId("a"): None, JobId("b"): None}

    def detail(self, job: JobId) -> Any:
        return SimpleNamespace(world=None, replicas=())


class WithoutSecrets:
    """A backend whose API server does not answer."""

    def told(self, *_: object, **__: object) -> None:
        raise Unavailable("get secrets: no answer")


def test_a_job_that_cannot_be_told_of_does_not_keep_the_others_from_it():
    heard: list[JobId] = []

    def told(job: JobId) -> None:
        heard.append(job)
        raise KeyError(job)

    Brain(told).look()

    assert sorted(heard) == ["a", "b"]


def test_a_job_whose_secret_cannot_be_read_is_asked_about_again():
    kept = Jobs(
        cast(Any, None),
        jobs=Store(),
        pods=Store(),
        nodes=Store(),
        backend=cast(Any, WithoutSecrets()),
        brain=Brain(),
        events=cast(Any, None),
        rules=lambda: Rules(house=House()),
        clock=lambda: NOW,
    )

    kept.learn(JOB)

    assert kept.unheard == {JOB}


def test_finished_plans_go_by_count_and_age_and_the_standing_one_never():
    plans = [plan("a", 1, 500), plan("b", 2, 400), plan("c", 3, 10), plan("d", 4, 5)]

    assert collected(plans, 9, NOW, Keeping(count=3, seconds=450)) == {"a"}
    assert collected(plans, 1, NOW, Keeping(count=1, seconds=450)) == {"b", "c"}


def options(tmp_path: Path, **given: Any) -> Namespace:
    (tmp_path / "scaler.token").write_text("brn_x\n")
    base = {
        "url": "http://brain",
        "token_file": None,
        "pool": None,
        "namespace": [],
        "own_namespace": "brain",
        "kubeconfig": None,
        "context": None,
        "pods_url": None,
        "agent_image": None,
        "agent_python": None,
        "mode": "shadow",
        "metrics": None,
        "workers": 4,
        "in_flight": 8,
        "poll_seconds": 2.0,
        "host_ports": "20000-29999",
        "lease_seconds": 10.0,
    }
    return Namespace(**base | given)


def test_the_command_line_is_understood(tmp_path: Path):
    made = operator_options(options(tmp_path, agent_image="brain:1"), tmp_path)

    assert (made.token, made.pool, made.mode) == ("brn_x", "kubernetes", "shadow")
    assert made.injection is not None
    assert made.injection.image == "brain:1"


@pytest.mark.parametrize(
    ("given", "says"),
    [({"host_ports": "1-5"}, "no range of ports"), ({"lease_seconds": 0.1}, "too short")],
)
def test_what_it_cannot_use_is_refused(tmp_path: Path, given: dict[str, Any], says: str):
    with pytest.raises(BadInput, match=says):
        operator_options(options(tmp_path, **given), tmp_path)
