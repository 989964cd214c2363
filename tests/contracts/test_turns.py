"""The spine on every adapter: the loop closes, and two Brains are no more than one."""

from concurrent.futures import ThreadPoolExecutor

from brain import cycle
from brain.ports import Stores
from brain.types.plan import PlanState
from tests.virtual import POOL, Laptop, scaling_by


def test_the_loop_closes(stores: Stores):
    laptop = Laptop(scaling_by(0.9), stores=stores).start()

    laptop.live(60)

    assert (laptop.plans[-1].state, laptop.size) == (PlanState.VERIFIED, 2)


def test_brains_that_turn_at_the_same_time_store_one_plan_and_begin_it_once(stores: Stores):
    laptop = Laptop(scaling_by(0.9), stores=stores).start().train(40)

    with ThreadPoolExecutor(4) as brains:
        turns = [
            brains.submit(cycle.turn, stores, POOL, laptop.settings, laptop.now) for _ in range(8)
        ]
        done = [turn.result(timeout=30) for turn in turns]

    assert sum(len(turn.plans) for turn in done) == 1
    assert laptop.events("plan.Applying") == ["plan.Applying 1"]
