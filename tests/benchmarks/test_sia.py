"""Sia's simulator in our own words: what a change costs, what a policy may give."""

from itertools import product

import numpy as np
import pytest

from benchmarks.jct.applications import Application, Validation
from benchmarks.jct.driven import Knowledge
from benchmarks.jct.sia.cluster import HETEROGENEOUS, Arrival, Tables, cluster
from benchmarks.jct.sia.jobs import Grant, Job
from benchmarks.jct.sia.policy import Sia, sizes
from benchmarks.jct.sia.run import Policy, check, play
from benchmarks.jct.sia.turn import Measured, Turn
from brain.errors import BadInput

T4, A100, RTX = HETEROGENEOUS


def table(speed: float) -> Application:
    """Scales almost linearly over any shape; ``speed`` times as fast as a T4."""
    corners = np.array(list(product((1.0, 16.0), (1.0, 64.0), (32.0, 256.0))))
    _, replicas, batches = corners.T
    seconds = (1 + 0.05 * (replicas - 1)) * batches / 320 / speed
    alone = batches[:2], np.stack([batches[:2] / 320 / speed, np.zeros(2)], axis=1)
    epochs = np.arange(1.0, 101.0)
    run = Validation(
        progress=20 * epochs,
        iterations=20 * epochs,
        squares=np.ones(100),
        variances=np.full(100, 50.0),
    )
    return Application(
        name="cifar10",
        epochs=100,
        runs={128: run, 4096: run},
        placements={(1,): alone},
        scale=(corners, np.stack([seconds, np.zeros_like(seconds)], axis=1)),
        smallest_local=32,
        largest_local=256,
    )


def tables() -> Tables:
    """On all kinds, an A100 four times as fast as a T4."""
    speeds = {T4.name: 1.0, A100.name: 4.0, RTX.name: 1.5}
    return {name: table(speed) for name, speed in speeds.items()}


def job() -> Job:
    """One that has not started."""
    return Job(name="a", application="cifar10", tables=tables(), submitted=0, asked_batch=2048)


def grant(kind: str, *shape: int, first: int = 0) -> Grant:
    """On nodes from ``first`` on."""
    return Grant(kind=kind, shape=shape, nodes=tuple(range(first, first + len(shape))))


def arrivals(count: int) -> list[Arrival]:
    """Jobs, a minute apart."""
    return [
        Arrival(name=f"cifar10-{n}", application="cifar10", seconds=60.0 * n, batch=2048)
        for n in range(count)
    ]


def test_a_start_holds_gpus_without_working() -> None:
    one = job()
    one.place(grant(T4.name, 4))
    one.step(50)
    assert (one.progress, one.gpu_seconds) == (0, 200)


def test_moving_between_nodes_of_a_kind_is_free_and_changing_the_shape_is_not() -> None:
    one = job()
    one.place(grant(T4.name, 4))
    one.step(60)
    one.place(grant(T4.name, 4, first=3))
    assert one.restoring == 0
    one.place(grant(T4.name, 2, 2))
    assert one.restoring == 50


def test_a_change_of_kind_is_a_restart() -> None:
    one = job()
    one.place(grant(T4.name, 4))
    one.step(60)
    one.place(grant(RTX.name, 4))
    assert (one.restoring, one.restarts) == (50, 1)


def test_a_cluster_is_read_as_it_is_written_beside_what_was_measured() -> None:
    assert cluster("6xT4x4+2xA100x8+3x2080Tix8") == HETEROGENEOUS


def test_a_cluster_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(BadInput, match="6xT4x4"):
        cluster("many GPUs")


def test_sia_chooses_powers_of_two_and_whole_nodes() -> None:
    assert sizes(T4) == [1, 2, 4, 8, 12, 16, 20, 24]
    assert sizes(A100) == [1, 2, 4, 8, 16]


def test_sia_doubles_a_job_that_is_alone_on_the_fastest_kind() -> None:
    policy, one = Sia(), job()
    one.place(grant(A100.name, 1))
    one.step(60)
    found = policy.decide(60, [one], HETEROGENEOUS, {})
    assert (found["a"].kind, found["a"].shape) == (A100.name, (2,))


def test_a_division_beyond_a_node_is_refused() -> None:
    with pytest.raises(ValueError, match="9 GPUs"):
        check({"a": grant(RTX.name, 8), "b": grant(RTX.name, 1)}, HETEROGENEOUS)


@pytest.mark.parametrize("policy", [Sia(), *(Turn(HETEROGENEOUS, k) for k in Knowledge)])
def test_every_job_ends(policy: Policy) -> None:
    found = play(arrivals(6), {"cifar10": tables()}, policy)
    assert min(found.completion_seconds.values()) > 50


def test_plans_of_the_service_are_what_jobs_get() -> None:
    policy = Turn(HETEROGENEOUS, Knowledge.NONE)

    outcome = play(arrivals(1), {"cifar10": tables()}, policy)

    with policy.stores.transaction(read_only=True) as tx:
        (one,) = tx.jobs.page(after=None, size=9)
        plans = tx.plans.of(one.id)
    applied = [plan for plan in plans if plan.outcome.epoch is not None]
    assert max(plan.target.replicas for plan in applied) > 1
    assert outcome.restarts_per_job == len(applied)


def test_a_micro_batch_beyond_what_was_measured_is_cut() -> None:
    script = Measured(name="cifar10", tables=tables())
    assert script.parts(T4.name, (1,), 256) == (256, 1)
    assert script.parts(T4.name, (1,), 300) == (150, 2)


def test_a_history_spares_later_jobs_the_ramp() -> None:
    alone = [
        Arrival(name=f"cifar10-{n}", application="cifar10", seconds=6000.0 * n, batch=2048)
        for n in range(2)
    ]
    found = play(alone, {"cifar10": tables()}, Turn(HETEROGENEOUS, Knowledge.HISTORY))
    first, second = found.completion_seconds.values()
    assert second < first
