"""Pollux's simulator in our own words: what a round, a restart and an epoch cost."""

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.jct.applications import Application, Validation
from benchmarks.jct.bench import Bench
from benchmarks.jct.policies.optimus import Optimus
from benchmarks.jct.policies.tiresias import Tiresias
from benchmarks.jct.pollux import Allocation, Job, Policy, share, simulate


def table(epochs: int = 1, steps: float = 100.0) -> Application:
    """A step takes 1 s anywhere; every example counts."""
    batches, times = np.array([1.0, 64.0]), np.array([[1.0, 0.25], [1.0, 0.25]])
    run = Validation(
        progress=steps * np.arange(1, epochs + 1),
        iterations=steps * np.arange(1, epochs + 1),
        squares=np.ones(epochs),
        variances=np.zeros(epochs),
    )
    return Application(
        name="even",
        epochs=epochs,
        runs={8: run, 64: run},
        placements={(1,): (batches, times), (2,): (batches, times), (1, 1): (batches, times)},
        scale=(np.empty((0, 3)), np.empty((0, 2))),
        smallest_local=1,
        largest_local=64,
    )


def job(submitted: int = 0, **changes: object) -> Job:
    """A job of 100 s."""
    return Job(
        name=f"job-{submitted}",
        application=table(**changes),  # type: ignore[arg-type]
        submitted=submitted,
        wished_replicas=1,
        wished_batch=8,
        batch=8,
    )


class Script:
    """Gives the nodes of each round in turn, the last of them for ever."""

    def __init__(self, *rounds: Sequence[int]) -> None:
        self.rounds = list(rounds)

    def admit(self, job: Job) -> None:
        """Nothing to set."""

    def decide(
        self, now: float, jobs: Sequence[Job], capacity: Sequence[int], current: Allocation
    ) -> Allocation:
        """The next of the script."""
        nodes = self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0]
        return {one.name: nodes for one in jobs}


def completed(policy: Policy, one: Job) -> float | None:
    """When a job alone in the cluster ends."""
    simulate([one], policy)
    return one.completed


def test_a_job_waits_for_the_next_round_and_pauses_before_its_first_step() -> None:
    assert completed(Script([0]), job(submitted=59)) == 60 + 30 + 100
    assert completed(Script([0]), job(submitted=61)) == 120 + 30 + 100


def test_another_list_of_nodes_is_a_restart() -> None:
    assert completed(Script([0], [1]), job()) == 60 + 30 + 30 + 30 + 70


def test_a_suspended_job_pauses_when_it_starts_again() -> None:
    assert completed(Script([0], [], [0]), job()) == 60 + 30 + 30 + 60 + 30 + 70


def test_a_restart_is_counted_from_the_second_start_on() -> None:
    one = job()
    completed(Script([0], [1], [0]), one)
    assert one.restarts == 2


def test_the_pause_counts_as_service() -> None:
    one = job()
    completed(Script([0, 0]), one)
    assert one.attained_gpu_seconds == 2 * 130


def test_the_end_of_an_epoch_is_rounded_to_whole_seconds() -> None:
    assert completed(Script([0]), job(epochs=2, steps=10.4)) == 60 + 30 + 10 + 10


def test_what_needs_more_than_a_local_batch_is_accumulated() -> None:
    assert share(table(), 8, 2) == (4, 1)
    assert share(table(), 192, 2) == (48, 2)


def test_one_replica_with_more_than_the_first_batch_takes_two_micro_batches() -> None:
    assert share(table(), 16, 1) == (8, 2)


def test_a_policy_cannot_give_what_a_node_has_not() -> None:
    with pytest.raises(ValueError, match="5 replicas on node 0"):
        simulate([job()], Script([0] * 5))


@pytest.mark.parametrize("load", [1.0, 1.5, 2.0])
def test_every_load_has_its_workload(load: float) -> None:
    assert Bench().file(load, 6).exists()


@pytest.mark.parametrize(
    ("policy", "seconds"), [(Tiresias(), 3469.69375), (Optimus(), 5301.875)], ids=lambda one: ""
)
def test_peers_take_as_long_as_was_published(policy: Policy, seconds: float) -> None:
    found = simulate(Bench().jobs(1.0, 6), policy)
    assert found.mean_seconds == pytest.approx(seconds, rel=1e-6)
