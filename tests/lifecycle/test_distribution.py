"""Copies of a program that knows no other worker are no job of several."""

from dataclasses import replace

import pytest

from brain.lifecycle.distribution import DistributionEvidence, evidence
from brain.models.fitting import Point
from brain.types.plan import PlanKind, PlanState, Verdict
from brain.types.telemetry import SaveSample, SourceId, ThroughputSample
from tests import builders
from tests.virtual import Laptop, scaling_by


def world(*met: bool | None, seconds: int = 5, replicas: int = 2) -> list[ThroughputSample]:
    """Samples of ranks that make ten steps a second and say whether they met another."""
    return [
        builders.throughput(
            second, rank=rank, source=f"{rank}", met=said, replicas=replicas, processes=len(met)
        )
        for second in range(seconds)
        for rank, said in enumerate(met)
    ]


def test_workers_that_met_nobody_by_the_first_save_after_ten_steps_are_copies() -> None:
    assert evidence(world(False, False), [builders.save(3)]) is DistributionEvidence.COPIES


def test_before_that_save_nothing_is_concluded() -> None:
    early = replace(builders.save(0), measured_at=builders.at(-1))
    assert evidence(world(False, False), [early]) is DistributionEvidence.COPIES_SO_FAR


def test_a_rank_without_ten_steps_is_waited_for() -> None:
    samples = [replace(one, step=9) if one.place.rank == 1 else one for one in world(False, False)]
    assert evidence(samples, [builders.save(9)]) is DistributionEvidence.COPIES_SO_FAR


@pytest.mark.parametrize(
    "met", [(True, True), (False, True), (False, None), (None, None), (False,)]
)
def test_one_that_met_another_or_does_not_tell_or_is_alone_proves_nothing(
    met: tuple[bool | None, ...],
) -> None:
    samples = world(*met, replicas=len(met))
    assert evidence(samples, [builders.save(9)]) is DistributionEvidence.NONE


def test_several_processes_of_one_replica_prove_nothing() -> None:
    samples = world(False, False, replicas=1)
    assert evidence(samples, [builders.save(9)]) is DistributionEvidence.NONE


def test_a_rank_that_was_not_heard_may_have_met_somebody() -> None:
    samples = [one for one in world(False, False) if one.place.rank == 0]
    assert evidence(samples, [builders.save(9)]) is DistributionEvidence.NONE


class Copies(Laptop):
    """A job whose every replica does the whole work by itself, and saves every four seconds."""

    def train(self, seconds: float, *, slow_rank: int | None = None) -> "Laptop":
        super().train(seconds, slow_rank=slow_rank)
        self._saves = getattr(self, "_saves", 0) + 1
        epoch = self.world.epoch if self.world else 0
        if self._saves % 2 == 0:
            save = builders.save(self._saves, measured_at=self.now)
            place = replace(save.place, job=self.id, epoch=epoch, source=SourceId(f"{epoch}-saves"))
            saved: SaveSample = replace(save, place=place)
            with self.stores.transaction() as tx:
                tx.telemetry.add([saved], received_at=self.now)
        return self


def copied(met: bool | None, **document: object) -> Copies:
    laptop = Copies(lambda replicas: 0.2 / replicas, **document)
    laptop.also = {"met": met, "local_batch": 64}
    laptop.start()
    return laptop


def test_the_first_growth_of_a_script_for_one_process_is_undone_told_and_remembered() -> None:
    laptop = copied(False)
    laptop.live(400)
    back, grown = laptop.plans
    assert (grown.state, grown.outcome.verdict) == (PlanState.ROLLED_BACK, Verdict.FELL_SHORT)
    assert (back.kind, back.explanation.code) == (PlanKind.ROLLBACK, "not-distributed")
    assert laptop.size == 1
    assert laptop.decision.explanation.code == "not-distributed"
    assert "independent: true" in laptop.decision.explanation.next_step
    assert laptop.events("job.not-distributed") == ["job.not-distributed 1"]


@pytest.mark.parametrize("met", [True, None])
def test_those_that_meet_and_those_that_do_not_tell_grow(met: bool | None) -> None:
    laptop = copied(met)
    laptop.live(120)
    (grown,) = laptop.plans
    assert (grown.outcome.verdict, laptop.size) == (Verdict.KEPT, 2)


def test_replicas_that_are_meant_to_be_independent_grow_and_add_up() -> None:
    laptop = copied(False, independent=True)
    laptop.live(120)
    assert (laptop.plans[0].outcome.verdict, laptop.size) == (Verdict.KEPT, 2)
    present = laptop.sight.present
    assert isinstance(present, Point)
    assert present.examples_per_step == 128


def test_an_example_that_every_copy_trains_counts_once() -> None:
    laptop = Laptop(scaling_by(0.9), cpus=2).start()
    laptop.live(60)
    laptop.also = {"met": False, "local_batch": 64}
    laptop.wait(3600).train(40)
    present = laptop.sight.present
    assert isinstance(present, Point)
    assert (present.processes, present.examples_per_step) == (2, 64)
