"""Estimates the costs of a change from telemetry, if the coordinator died before it could report
the costs.
"""

from dataclasses import replace
from datetime import timedelta

from brain.ports import Transaction
from brain.types.world import World

#: Time before the first step of the next world in which the last steps of a world are searched.
_WINDOW = timedelta(hours=1)


def estimated(tx: Transaction, world: World) -> World:
    """Fill in downtime and redone steps that the coordinator could not report.

    A coordinator that dies with its workers loses their counters. The samples that the workers sent
    remain, with their last window of steps and their last save. The estimate misses at most one
    unsent window, a second of training.
    """
    before = next((w for w in tx.worlds.of(world.job) if w.epoch < world.epoch), None)
    if before is None or world.stepping_at is None:
        return world
    since = world.stepping_at - _WINDOW
    windows = tx.telemetry.throughput(world.job, since=since, epoch=before.epoch)
    steps = [sample for sample in windows if sample.place.rank == 0]
    if not steps:
        return world
    last = steps[-1]
    saves = [
        s for s in tx.telemetry.saves(world.job, since=since) if s.place.source == last.place.source
    ]
    down = (world.stepping_at - last.measured_at).total_seconds()
    redone = last.step - (saves[-1].step if saves else 0)
    return replace(
        world,
        downtime_seconds=max(down, 0.0)
        if world.downtime_seconds is None
        else world.downtime_seconds,
        steps_redone=max(redone, 0) if world.steps_redone is None else world.steps_redone,
    )
