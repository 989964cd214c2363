"""Amounts of jobs that share a pool, beside the rounds that decide about sizes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from brain import lifecycle
from brain.types.allocation import Bounds
from brain.types.plan import PlanKind, PlanState, ScalePlan, Verdict
from brain.types.resources import Resources
from brain.types.telemetry import SourceId
from brain.types.world import Replica, ReplicaState
from tests import builders
from tests.pool.rounds.fleet import Fleet, Running

GIB = 2**30
ONE = Bounds(min=1, max=1)


class Read(Fleet):
    """A fleet whose scaler says what replicas have, and whose machines are read."""

    def __init__(self, cpus: int, **given: Any) -> None:
        super().__init__({"one": cpus}, **given)
        #: mCPU and bytes that each replica of a job uses, and the share that its quota stops.
        self.uses: dict[str, Callable[[Resources], tuple[int, int, float]]] = {}

    def has(self, running: Running) -> Resources:
        with self.stores.transaction(read_only=True) as tx:
            job = tx.jobs.get(running.id)
            return lifecycle.wish(tx, job, self.settings).resources or job.document.resources

    def _observe(self, running: Running, replicas: list[Replica]) -> None:
        has = self.has(running)
        live = [
            one if one.state is ReplicaState.EXITED else replace(one, resources=has)
            for one in replicas
        ]
        super()._observe(running, live)

    def read(self, minutes: float, *, every: int = 10) -> None:
        """Live; every few seconds scalers report, and machines are read."""
        for _ in range(round(60 * minutes / every)):
            self.live(2)
            self.pass_time(every - 2)
            for name, running in list(self.jobs.items()):
                if running.replicas:
                    self._observe(running, list(running.replicas.values()))
                    self._collect(name, running)

    def _collect(self, name: str, running: Running) -> None:
        millis, memory, stopped = self.uses[name](self.has(running))
        count = len(running.replicas)
        sample = builders.host(
            int(self.now.timestamp()),
            job=running.id,
            node="one",
            measured_at=self.now,
            cpu_capacity_millis=64_000,
            memory_capacity_bytes=64 * GIB,
            job_cpu_millis=count * millis,
            job_memory_bytes=count * memory,
            throttled_share=stopped,
        )
        sample = replace(sample, source=SourceId(f"collector-{name}"))
        with self.stores.transaction() as tx:
            tx.telemetry.add([sample], received_at=self.now)

    def amounts(self, name: str) -> list[ScalePlan]:
        return [plan for plan in self.plans(name) if plan.changes_resources]


def steady(millis: int, memory: int = GIB) -> Callable[[Resources], tuple[int, int, float]]:
    return lambda _: (millis, memory, 0.0)


def flat(_: int) -> float:
    """No size is faster than another."""
    return 0.2


def test_a_job_that_its_quota_stops_is_mended_beside_another():
    here = Read(8)
    here.submit("held", flat, replicas=ONE, resources=Resources(cpu_millis=500))
    here.submit("other", flat, replicas=ONE, resources=Resources(cpu_millis=1000))
    here.uses = {
        "held": lambda has: (has.cpu_millis // 2, GIB, 0.4 if has.cpu_millis < 700 else 0.0),
        "other": steady(900),
    }
    here.read(8)

    plan, *others = here.amounts("held")
    assert {one.outcome.verdict for one in (plan, *others)} == {Verdict.KEPT}
    assert plan.kind is PlanKind.RESIZE
    assert here.job(here.jobs["held"].id).resources.cpu_millis >= 700
    assert here.plans("other") == []
    assert here.decision("held").explanation.code == "at-share"


def test_what_a_job_gives_back_starts_a_job_that_waits():
    here = Read(4)
    here.submit("ample", flat, replicas=ONE, resources=Resources(cpu_millis=3000))
    here.uses = {"ample": steady(1000), "waits": steady(1900)}
    here.read(3)
    here.submit("waits", flat, replicas=ONE, resources=Resources(cpu_millis=2000))
    here.read(3)
    assert here.size("waits") == 0

    here.read(8)
    (plan,) = here.amounts("ample")
    assert plan.outcome.verdict is Verdict.KEPT
    assert plan.target.resources.cpu_millis < 1300
    assert here.size("waits") == 1


def asking() -> tuple[Read, ScalePlan]:
    """A job that could grow beside another, and whose amounts wait for a person."""
    here = Read(2)
    nearly = Resources(cpu_millis=1000, memory_bytes=GIB)
    here.submit("asks", lambda n: 0.2 / n**0.9, mode="approve", resources=nearly)
    here.submit("other", flat, replicas=ONE)
    here.uses = {"asks": steady(700, int(0.97 * GIB)), "other": steady(900)}
    here.read(3)
    (amounts,) = here.plans("asks")
    return here, amounts


def test_amounts_that_wait_for_a_person_keep_no_size_from_a_round():
    here, amounts = asking()
    assert (amounts.state, amounts.changes_resources) == (PlanState.PROPOSED, True)
    assert here.decision("asks").explanation.code == "at-share", "it is looked at all the same"

    here.finish("other")
    here.read(1)
    size, amounts = here.plans("asks")
    assert (amounts.state, amounts.changes_resources) == (PlanState.SUPERSEDED, True)
    assert amounts.outcome.detail == "withdrawn: the pool's round changes its size"
    assert (size.state, size.target.replicas) == (PlanState.PROPOSED, 2)


def test_a_person_who_rejects_amounts_keeps_no_size_from_a_round():
    here, amounts = asking()
    with here.stores.transaction() as tx:
        lifecycle.reject(tx, amounts, by="ada", version=None, why="mine", now=here.now)

    here.finish("other")
    here.read(1)
    size, amounts = here.plans("asks")
    assert amounts.state is PlanState.REJECTED
    assert (size.state, size.target.replicas) == (PlanState.PROPOSED, 2)


def test_a_job_that_may_grow_grows_before_its_amounts_change():
    here = Read(4)
    nearly = Resources(cpu_millis=1000, memory_bytes=GIB)
    here.submit("grows", lambda n: 0.2 / n, resources=nearly)
    here.uses = {"grows": steady(700, int(0.97 * GIB))}
    here.read(8)
    assert not here.plans("grows")[-1].changes_resources
    assert here.amounts("grows")
