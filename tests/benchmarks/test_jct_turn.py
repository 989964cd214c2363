"""Brain's service in Pollux's simulator: its turn decides, and its wishes are what jobs get."""

import numpy as np
import pytest

from benchmarks.jct.applications import Application, Validation
from benchmarks.jct.driven import Knowledge, Script
from benchmarks.jct.pollux import Job, Rules, simulate
from benchmarks.jct.turn import Turn
from brain.simulator.applications import DeviceKind

EPOCHS = 10


def table(*, fixed: bool = False) -> Application:
    """Half an hour on one device; two take half of it. Noise bears any batch."""
    epochs = np.arange(1, EPOCHS + 1)
    run = Validation(
        progress=epochs * 180.0,
        iterations=epochs * 180.0,
        squares=np.ones(EPOCHS),
        variances=np.full(EPOCHS, 1e3),
    )
    batches, times = np.array([1.0, 64.0]), np.array([[0.125, 0.0], [8.0, 0.0]])
    return Application(
        name="even",
        epochs=EPOCHS,
        runs={8: run, 64: run},
        placements={(size,): (batches, times) for size in (1, 2, 3, 4)},
        scale=(np.empty((0, 3)), np.empty((0, 2))),
        smallest_local=1,
        largest_local=64,
        fixed=fixed,
    )


def job(name: str, submitted: int = 0, *, fixed: bool = False) -> Job:
    return Job(
        name=name,
        application=table(fixed=fixed),
        submitted=submitted,
        wished_replicas=1,
        wished_batch=8,
    )


def test_plans_of_the_service_are_what_jobs_get_and_all_end():
    jobs = [job("one"), job("two", 900), job("three", 960, fixed=True)]
    policy = Turn(Knowledge.NONE, nodes=1, per_node=4)

    outcome = simulate(jobs, policy, Rules(nodes=1, gpus_per_node=4))

    assert set(outcome.completion_seconds) == {"one", "two", "three"}
    with policy.stores.transaction(read_only=True) as tx:
        found = {one.document.name: one for one in tx.jobs.page(after=None, size=9)}
        plans = {name: tx.plans.of(one.id) for name, one in found.items()}
    applied = [plan for plan in plans["one"] if plan.outcome.epoch is not None]
    assert 4 in {plan.target.replicas for plan in applied}
    assert jobs[0].restarts == len(applied)


def test_runs_of_one_application_have_one_script_where_history_counts():
    policy = Turn(Knowledge.HISTORY, nodes=1, per_node=2)

    simulate([job("one"), job("two", 300)], policy, Rules(nodes=1, gpus_per_node=2))

    with policy.stores.transaction(read_only=True) as tx:
        found = {one.document.command for one in tx.jobs.page(after=None, size=9)}
    assert found == {("python", "even.py")}


def test_a_run_is_of_the_script_that_its_owner_calls_it_and_as_slow_as_it_is():
    quick, slow = job("one"), job("two")
    slow.script, slow.slowdown = "odd", 2.0
    policies = [Turn(Knowledge.HISTORY, nodes=1, per_node=1) for _ in range(2)]

    rules = Rules(nodes=1, gpus_per_node=1)
    fast, late = (
        simulate([one], by, rules) for one, by in zip((quick, slow), policies, strict=True)
    )

    with policies[1].stores.transaction(read_only=True) as tx:
        (found,) = tx.jobs.page(after=None, size=9)
    assert found.document.command == ("python", "odd.py")
    assert late.mean_seconds > 1.8 * fast.mean_seconds


def test_what_cannot_adapt_trains_with_its_largest_batch_for_as_many_steps_as_that_takes():
    fixed = Script(name="even", tables={"gpu": table(fixed=True)})

    assert (fixed.first_batch, fixed.examples) == (64, 1800.0 * 64)


def test_micro_batches_before_the_last_do_not_synchronise():
    even = Script(name="even", tables={"gpu": table()})

    assert even.seconds(DeviceKind(name="gpu"), (2,), 8, 3) == pytest.approx(3.0)
