"""Jobs that share one machine's slots, with real processes: one makes room so that one starts."""

from collections.abc import Iterator

import pytest
import torch

from brain import calls
from brain.client import Call
from brain.types.sharing import PoolRound
from brain.types.world import World
from brain.views import JobDetail, PoolView
from tests.harness import Brain, running

EXAMPLES, BATCH = 64, 16
#: What every job of these tests says beside its size.
SHARED = {"optimizeMode": "cluster", "policy": {"mode": "auto"}}


@pytest.fixture(scope="module")
def brain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brain]:
    with running(tmp_path_factory.mktemp("b"), "--slots=2") as brain:
        yield brain


def of_size(replicas: int):  # type: ignore[no-untyped-def]
    def look(detail: JobDetail) -> World | None:
        world = detail.world if detail.world and detail.world.stepping_at else None
        return world if world and world.replicas == replicas and not world.ended_at else None

    return look


def divided(brain: Brain, jobs: int) -> PoolRound | None:
    """The latest round, once so many jobs share the pool."""
    pool: PoolView = brain.send(calls.pool("local"))
    return pool.round if pool.round and len(pool.round.shares) == jobs else None


def undisturbed(brain: Brain, name: str, steps: int) -> bool:
    """Whether every example was used as often as if nothing had ever happened."""
    used = torch.load(brain.work(name) / "counted.pt")["used"]
    alone = torch.bincount(torch.arange(steps * BATCH) % EXAMPLES, minlength=EXAMPLES)
    return bool(torch.equal(used, alone))


@pytest.mark.slow
def test_a_job_makes_room_for_one_that_comes_and_has_it_back_when_that_ends(brain: Brain) -> None:
    bounds = {"min": 1, "max": 2}
    first = brain.submit("counted.py", "--steps=100000", name="first", replicas=bounds, **SHARED)
    brain.until("two replicas of the first", 110, first, of_size(2))

    second = brain.submit("counted.py", "--steps=150", name="second", replicas=bounds, **SHARED)
    brain.until("one replica of the first", 110, first, of_size(1))
    brain.until("a start of the second", 60, second, of_size(1))
    told = brain.until("a round of both", 60, second, lambda _: divided(brain, 2))
    gave = next(v.plan for v in brain.send(calls.plans_of(first)).items if v.plan.kind == "resize")

    assert gave.explanation.code == "makes-room"
    assert {share.name for share in told.shares} == {"first", "second"}
    assert told.value <= told.bound
    assert brain.finished(second).job.state == "Succeeded"
    brain.until("two replicas of the first again", 150, first, of_size(2))
    brain.send(calls.cancel(first))
    assert brain.finished(first).job.state == "Cancelled"
    assert undisturbed(brain, "second", 150)


def test_the_service_counts_what_a_round_came_to(brain: Brain) -> None:
    job = brain.submit("counted.py", "--steps=100000", name="counted", **SHARED)
    brain.until("a step", 60, job, of_size(1))

    def told(_: JobDetail) -> bool | None:
        with brain.client as client:
            text = client.send(METRICS).decode()
        return 'brain_pool_gap{pool="local"}' in text or None

    brain.until("the gap of a round", 60, job, told)
    brain.send(calls.cancel(job))
    brain.finished(job)


METRICS = Call(method="GET", path="/metrics", reads=bytes)
