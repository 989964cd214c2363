"""Samples that a decision waits for begin the next turn; nobody waits for the tick."""

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from brain.api.bell import Bell
from brain.api.metrics import Metrics, ServiceCondition
from brain.service.tick import Ticker
from brain.settings import Settings
from tests.patience import Patience
from tests.virtual import Laptop, scaling_by

#: Seconds that the test waits for a turn on a busy machine; the tick alone would take an hour.
PATIENCE = 60.0


def ticking(laptop: Laptop, home: Path, metrics: Metrics) -> Ticker:
    """A ticker that would turn once an hour."""
    return Ticker(
        laptop.stores,
        Settings(policy_mode="approve", tick_seconds=3600.0),
        lambda: laptop.now,
        home=home,
        bell=Bell(),
        metrics=metrics,
        condition=ServiceCondition(metrics),
    )


def test_samples_that_are_waited_for_wake_the_tick(tmp_path: Path) -> None:
    laptop = Laptop(scaling_by(0.9)).start()
    metrics = Metrics()
    ticker = ticking(laptop, tmp_path, metrics)
    ticker.start()
    assert _until(lambda: _turns(metrics) == 1)
    laptop.train(40)

    woken = _until(lambda: ticker.measured(frozenset({laptop.id})) or _turns(metrics) > 1)
    ticker.stop(PATIENCE)

    assert woken
    assert laptop.decision.measured is not None


def test_samples_that_nobody_waits_for_do_not(tmp_path: Path) -> None:
    laptop = Laptop(scaling_by(0.9)).start()
    metrics = Metrics()
    ticker = ticking(laptop, tmp_path, metrics)
    ticker.start()
    assert _until(lambda: _turns(metrics) == 1)

    for _ in range(20):
        ticker.measured(frozenset({"another"}))
        time.sleep(0.05)
    ticker.stop(PATIENCE)

    assert _turns(metrics) == 1


def test_a_clock_that_is_set_back_keeps_no_job_from_being_looked_at(tmp_path: Path) -> None:
    laptop = Laptop(scaling_by(0.9)).start()
    ticker = ticking(laptop, tmp_path, Metrics())
    ticker.tick()
    before = laptop.decision.decided_at
    laptop.now -= timedelta(hours=1)
    ticker.tick()

    assert laptop.decision.decided_at == before - timedelta(hours=1)


def _turns(metrics: Metrics) -> int:
    found = metrics.registry.get_sample_value(
        "brain_ticks_total", {"pool": "local", "outcome": "ok"}
    )
    return round(found or 0)


def _until(seen: Callable[[], object]) -> bool:
    patience = Patience(PATIENCE)
    while not seen() and not patience.over:
        time.sleep(0.05)
    return bool(seen())
