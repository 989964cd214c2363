"""What a kill cost, told from telemetry where its coordinator died with it."""

from brain.inmemory import MemoryStores
from brain.lifecycle.costs import estimated
from tests import builders


def stores_with(*samples) -> MemoryStores:
    stores = MemoryStores()
    with stores.transaction() as tx:
        tx.worlds.put(builders.world(1))
        tx.telemetry.add(samples, received_at=builders.NOW)
    return stores


def test_downtime_is_from_the_last_window_and_redone_steps_from_the_last_save():
    windows = [builders.throughput(second) for second in range(12)]
    with stores_with(*windows, builders.save(20, step=100)).transaction() as tx:
        world = estimated(tx, builders.world(2, stepping_at=builders.at(18)))
    assert (world.downtime_seconds, world.steps_redone) == (7.0, 20)


def test_what_the_coordinator_knew_stays():
    known = builders.world(2, stepping_at=builders.at(9), downtime_seconds=1.5, steps_redone=0)
    with stores_with(builders.throughput(0)).transaction() as tx:
        assert estimated(tx, known) == known


def test_without_telemetry_nothing_is_guessed():
    with stores_with().transaction() as tx:
        world = estimated(tx, builders.world(2, stepping_at=builders.at(9)))
    assert world.downtime_seconds is None
