"""The second run of a script begins where the first one was, and knows what that one measured."""

from brain.types.allocation import Bounds
from tests.pool.rounds.fleet import Fleet
from tests.virtual import scaling_by

SCRIPT = ("python", "digits.py", "--lr", "0.1")


def after_one_run() -> Fleet:
    fleet = Fleet({"a": 16})
    fleet.submit("monday", scaling_by(0.9), command=SCRIPT, replicas=Bounds(min=1, max=16))
    fleet.live(1200)
    fleet.finish("monday")
    fleet.live(4)
    return fleet


def test_a_second_run_begins_at_the_usual_size_of_the_first():
    fleet = after_one_run()
    fleet.submit("tuesday", scaling_by(0.9), command=SCRIPT, replicas=Bounds(min=1, max=16))
    fleet.submit("other", scaling_by(0.9), replicas=Bounds(min=1, max=16))
    fleet.live(4)

    assert fleet.size("tuesday") == 8
    assert fleet.size("other") == 2


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


def basis(fleet: Fleet, name: str) -> str:
    return {fact.label: fact.value for fact in fleet.decision(name).explanation.evidence}[
        "rests on"
    ]
