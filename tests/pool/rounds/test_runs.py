"""The second run of a script knows what the first one measured, and begins at what that is worth
to its pool."""

from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from brain import lifecycle
from brain.pool.allocator import JobPlacement
from brain.pool.division.market import PATIENCE_SECONDS
from brain.pool.rounds import Memo, Starts
from brain.types.allocation import Bounds
from brain.types.job import JobId, OptimizeMode
from brain.types.resources import Resources
from tests.pool.rounds.fleet import POOL, QUICK, Fleet
from tests.virtual import scaling_by

SCRIPT = ("python", "digits.py", "--lr", "0.1")


def after_one_run() -> Fleet:
    return _after_one_run().copied()


@cache
def _after_one_run() -> Fleet:
    fleet = Fleet({"a": 16})
    fleet.submit("monday", scaling_by(0.9), command=SCRIPT, replicas=Bounds(min=1, max=16))
    fleet.live(1200, every=6)
    fleet.finish("monday")
    fleet.live(4)
    return fleet


@pytest.mark.slow
def test_a_second_run_begins_at_the_size_that_its_pool_makes_of_the_first():
    fleet = after_one_run()
    again(fleet)
    fleet.submit("other", scaling_by(0.9), replicas=Bounds(min=1, max=16))
    fleet.live(2)

    assert fleet.size("tuesday") == 12
    assert fleet.size("other") == 4


def test_of_two_that_begin_the_shorter_is_served_first():
    fleet = after_one_run()
    for name, steps in (("long", 10**6), ("short", 10**3)):
        bounds = Bounds(min=1, max=16)
        fleet.submit(name, scaling_by(0.9), command=SCRIPT, steps=steps, replicas=bounds)
    fleet.live(2)

    assert fleet.size("short") > fleet.size("long") > 0


def test_a_second_run_waits_for_what_it_was_granted():
    fleet = after_one_run()
    fleet.memo = Memo(POOL)
    fleet.submit("long", scaling_by(0.9), replicas=Bounds(min=1, max=16))
    fleet.live(600, every=6)
    assert fleet.size("long") >= 14, "it has nearly all of the pool"

    id = again(fleet)
    fleet.live(2)
    assert fleet.size("tuesday") == 0

    fleet.live(30)
    with fleet.stores.transaction(read_only=True) as tx:
        first = min(tx.worlds.of(id), key=lambda world: world.epoch)
    assert len(first.members) > 4, "the other one made room, and it began with all of that"


def test_a_second_run_waits_for_a_minute_at_most():
    fleet, memo = after_one_run(), Memo(POOL)
    job = fleet.job(again(fleet))

    def why(replicas: int, seconds: float) -> str | None:
        with fleet.stores.transaction(read_only=True) as tx:
            now = job.created_at + timedelta(seconds=seconds)
            memo.catch_up(tx, now)
            return Starts([job], fleet.settings, tx, memo, now).waits(job, replicas)

    assert "the pool's next round chooses the job's size" in str(why(1, 0))
    memo.granted = {job.id: JobPlacement("cpu", ("a",) * 8)}
    assert "granted 8 replicas, but not all of them are free yet" in str(why(1, 30))
    assert why(8, 30) is None
    assert why(1, PATIENCE_SECONDS + 1) is None


def test_a_second_run_that_waits_loses_its_place_to_nobody_who_would_keep_it():
    fleet = after_one_run()
    fleet.memo = Memo(POOL)
    fleet.live(10)
    again(fleet, priority=2, replicas=Bounds(min=4, max=16))
    rigid = Bounds(min=16, max=16)
    fleet.submit("low", scaling_by(0.9), optimize_mode=OptimizeMode.SINGLE_JOB, replicas=rigid)
    fleet.live(2)

    assert fleet.size("tuesday") >= 4
    assert fleet.size("low") == 0


@pytest.mark.slow
def test_nobody_is_stopped_for_a_second_run_to_begin_larger():
    fleet = after_one_run()
    fleet.memo = Memo(POOL)
    low = [f"low{index}" for index in range(3)]
    for name in low:
        bounds = Bounds(min=4, max=4)
        fleet.submit(name, scaling_by(0.9), preemptible=True, priority=-2, replicas=bounds)
    fleet.live(120)
    again(fleet, priority=2)
    fleet.live(60)

    assert [fleet.size(name) for name in low] == [4, 4, 4]
    assert fleet.size("tuesday") == 4


@pytest.mark.slow
def test_runs_on_another_kind_of_accelerator_choose_no_first_size():
    fleet = Fleet({"a": 8, "b": 8}, kinds={"a": "A100", "b": "V100"})
    each, bounds = Resources(cpu_millis=1000, memory_bytes=2**20, gpus=1), Bounds(min=1, max=8)
    given: dict[str, Any] = {"command": SCRIPT, "resources": each, "replicas": bounds}
    fleet.submit("monday", scaling_by(0.9), accelerator="A100", **given)
    fleet.live(600, every=6)
    fleet.finish("monday")
    fleet.live(4)
    fleet.submit("tuesday", scaling_by(0.9), accelerator="V100", **given)
    fleet.live(2)

    assert fleet.size("tuesday") == 4


#: Two kinds, of which the one that comes first is the slower one.
TWO_KINDS = {"a": "V100", "b": "A100"}
#: A replica on an accelerator.
ON_ONE = Resources(cpu_millis=1000, memory_bytes=2**20, gpus=1)


def test_a_second_run_begins_on_the_kind_where_its_script_was_fastest():
    fleet = Fleet({"a": 8, "b": 8}, kinds=TWO_KINDS)
    given: dict[str, Any] = {"command": SCRIPT, "resources": ON_ONE}
    bounds = Bounds(min=1, max=8)
    for name, kind in (("monday", "V100"), ("sunday", "A100")):
        fleet.submit(name, scaling_by(0.9), accelerator=kind, replicas=bounds, **given)
    fleet.live(600, every=6)
    fleet.finish("monday")
    fleet.finish("sunday")
    fleet.live(4)
    fleet.memo = Memo(POOL)
    fleet.live(4)
    fleet.submit("tuesday", scaling_by(0.9), replicas=bounds, **given)
    fleet.live(4)

    assert fleet.size("tuesday") > 1
    assert fleet.held() == {"b": fleet.size("tuesday")}


def test_a_script_that_nobody_knows_begins_on_the_fastest_kind_of_its_pool():
    fleet = Fleet({"a": 4, "b": 4}, kinds=TWO_KINDS, settings=replace(QUICK, migrate=True))
    fleet.memo = Memo(POOL)
    fleet.submit("monday", scaling_by(0.9), resources=ON_ONE, replicas=Bounds(min=1, max=4))
    fleet.live(900, every=6)
    assert set(fleet.held()) == {"b"}, "it tried both kinds"

    fleet.finish("monday")
    fleet.live(4)
    fleet.submit("tuesday", scaling_by(0.9), resources=ON_ONE, replicas=Bounds(min=1, max=2))
    fleet.live(2)
    assert set(fleet.held()) == {"b"}


def test_in_a_pool_of_one_kind_a_job_may_begin_on_any_node():
    fleet = Fleet({"a": 4, "b": 4})
    id = again(fleet)
    fleet.live(2)
    with fleet.stores.transaction(read_only=True) as tx:
        assert lifecycle.wish(tx, tx.jobs.get(id), fleet.settings).nodes == ()


def test_a_history_that_brings_out_a_bug_stops_nobody(monkeypatch: pytest.MonkeyPatch):
    fleet = after_one_run()
    fleet.memo = Memo(POOL)
    fleet.live(4)

    def broken(*_: object) -> None:
        raise ValueError("poisoned")

    monkeypatch.setattr("brain.pool.rounds.starts.foresee", broken)
    again(fleet)
    fleet.submit("fresh", scaling_by(0.9), replicas=Bounds(min=1, max=16))
    fleet.live(4)

    assert fleet.size("tuesday") > 0
    assert fleet.size("fresh") > 0


def test_a_second_run_keeps_what_its_owner_named_where_brain_only_proposes():
    fleet = after_one_run()
    again(fleet, mode="approve", replicas=Bounds(min=1, max=16, start=3))
    fleet.live(4)

    assert fleet.size("tuesday") == 3


def test_other_numbers_in_its_arguments_are_the_same_script():
    fleet = after_one_run()
    command = (*SCRIPT[:-1], "0.01")
    fleet.submit("tuesday", scaling_by(0.9), command=command, replicas=Bounds(min=1, max=16))
    fleet.live(40)

    assert "measured by 1 earlier run (monday)" in basis(fleet, "tuesday")


@pytest.mark.slow
def test_a_run_hears_what_a_later_run_measures_while_both_go_on():
    fleet = after_one_run()
    again(fleet)
    fleet.live(20)
    fleet.submit("wednesday", scaling_by(0.9), command=SCRIPT, replicas=Bounds(min=1, max=16))
    fleet.live(60)
    assert "wednesday" not in basis(fleet, "tuesday")

    fleet.live(300)
    assert "2 earlier runs (wednesday, monday)" in basis(fleet, "tuesday")


def test_a_script_that_became_another_is_seen_at_its_first_measurement():
    fleet = after_one_run()

    def slow(size: int) -> float:
        return 6.0 * scaling_by(0.1)(size)

    fleet.submit("tuesday", slow, command=SCRIPT, replicas=Bounds(min=1, max=16))
    fleet.live(40)
    assert "not on 1 earlier run (monday): a step takes" in basis(fleet, "tuesday")


def again(fleet: Fleet, **document: Any) -> JobId:
    given: dict[str, Any] = {"replicas": Bounds(min=1, max=16)}
    return fleet.submit("tuesday", scaling_by(0.9), command=SCRIPT, **(given | document))


def basis(fleet: Fleet, name: str) -> str:
    return {fact.label: fact.value for fact in fleet.decision(name).explanation.evidence}[
        "rests on"
    ]
