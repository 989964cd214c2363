"""Estimates, from telemetry, of the cost of a change after which no coordinator could report it."""

from dataclasses import replace
from datetime import timedelta

from brain.ports import Transaction
from brain.types.world import World

#: The last steps of a world are looked for in so much time before the next one stepped.
_WINDOW = timedelta(hours=1)


def estimated(tx: Transaction, world: World) -> World:
    """Fill in downtime and redone steps that the coordinator could not know.

    A coordinator that died with its workers takes their counters along. Samples that they had
    sent remain: their last window of steps, and their last save. At most the steps of a window that
    was not sent yet, a second of training, are missed.
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
