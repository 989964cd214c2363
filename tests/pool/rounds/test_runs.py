"""The second run of a script knows what the first one measured, and begins at what that is worth
to its pool."""

from datetime import timedelta
from typing import Any

from brain.pool.division.market import PATIENCE_SECONDS
from brain.pool.rounds import Memo, Starts
from brain.types.allocation import Bounds
from brain.types.job import JobId
from tests.pool.rounds.fleet import POOL, Fleet
from tests.virtual import scaling_by

SCRIPT = ("python", "digits.py", "--lr", "0.1")


def after_one_run() -> Fleet:
    fleet = Fleet({"a": 16})
    fleet.submit("monday", scaling_by(0.9), command=SCRIPT, replicas=Bounds(min=1, max=16))
    fleet.live(1200)
    fleet.finish("monday")
    fleet.live(4)
    return fleet


def test_a_second_run_begins_at_the_size_that_its_pool_makes_of_the_first():
    fleet = after_one_run()
    again(fleet)
    fleet.submit("other", scaling_by(0.9), replicas=Bounds(min=1, max=16))
    fleet.live(2)

    assert fleet.size("tuesday") == 12
    assert fleet.size("other") == 4


def test_a_second_run_waits_for_what_it_was_granted():
    fleet = after_one_run()
    fleet.memo = Memo(POOL)
    fleet.submit("long", scaling_by(0.9), replicas=Bounds(min=1, max=16))
    fleet.live(600)
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
            return Starts(1, fleet.settings, tx, memo, now).waits(job, replicas)

    assert "the pool's next round chooses its size" in str(why(1, 0))
    memo.granted = {job.id: 8}
    assert "1 of 8\u202freplicas are free that its pool granted it" in str(why(1, 30))
    assert why(8, 30) is None
    assert why(1, PATIENCE_SECONDS + 1) is None


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

    assert "measured by 1\u202fearlier run (monday)" in basis(fleet, "tuesday")


def test_a_script_that_became_another_is_seen_at_its_first_measurement():
    fleet = after_one_run()

    def slow(size: int) -> float:
        return 6.0 * scaling_by(0.1)(size)

    fleet.submit("tuesday", slow, command=SCRIPT, replicas=Bounds(min=1, max=16))
    fleet.live(40)
    assert "not on 1\u202fearlier run (monday): a step takes" in basis(fleet, "tuesday")


def again(fleet: Fleet, **document: Any) -> JobId:
    given: dict[str, Any] = {"replicas": Bounds(min=1, max=16)}
    return fleet.submit("tuesday", scaling_by(0.9), command=SCRIPT, **(given | document))


def basis(fleet: Fleet, name: str) -> str:
    return {fact.label: fact.value for fact in fleet.decision(name).explanation.evidence}[
        "rests on"
    ]
