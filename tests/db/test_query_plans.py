"""The plans that SQLite makes of what is asked often: none reads a whole table."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from brain.db import SqlStores
from brain.errors import UnknownJob
from brain.ports import Transaction
from brain.series import METRICS
from brain.types.resources import NodeName, PoolName
from tests.builders import JOB, NOW, at

Asked = list[tuple[str, tuple[object, ...]]]


def _get_job(t: Transaction) -> None:
    with pytest.raises(UnknownJob):
        t.jobs.get(JOB)


MINUTE = timedelta(minutes=1)
QUESTIONS: dict[str, Callable[[Transaction], object]] = {
    "job by id or name": _get_job,
    "unfinished jobs": lambda t: t.jobs.unfinished(PoolName("local")),
    "marks of a pool": lambda t: t.pools.marks(PoolName("local")),
    "page of jobs": lambda t: t.jobs.page(after=("x",), size=10),
    "active plan": lambda t: t.plans.active(JOB),
    "plans of a job": lambda t: t.plans.of(JOB),
    "page of a job's plans": lambda t: t.plans.page_of(JOB, below=7, size=10),
    "plans of a pool": lambda t: t.plans.since_reached(PoolName("local")),
    "inbox": lambda t: t.plans.page(after=(NOW, JOB, 1), size=10),
    "recent throughput": lambda t: t.telemetry.throughput(JOB, since=NOW, epoch=1),
    "newest throughput": lambda t: t.telemetry.newest(JOB),
    "recent hosts": lambda t: t.telemetry.hosts(JOB, since=NOW),
    "samples of many jobs": lambda t: t.telemetry.read_ahead({JOB: NOW}, window=MINUTE),
    "steps": lambda t: t.telemetry.steps([JOB]),
    "losses": lambda t: t.telemetry.losses(JOB),
    "retirement": lambda t: t.telemetry.retire(raw_before=NOW, means_before=NOW, hours_before=NOW),
    "latest world": lambda t: t.worlds.latest(JOB),
    "replicas of a job": lambda t: t.worlds.replicas(JOB),
    "replicas on nodes": lambda t: t.worlds.on([NodeName("a"), NodeName("b")]),
    "live replicas of a pool": lambda t: t.worlds.live(PoolName("local")),
    "events": lambda t: t.events.after(7),
    "events of a job": lambda t: t.events.after(7, job=JOB),
    "token": lambda t: t.access.token("hash"),
} | {
    metric: lambda t, metric=metric: t.telemetry.series(
        JOB, metric, since=NOW, until=at(60), points=10
    )
    for metric in METRICS
}

#: Tables of which a question reads all rows, beside the one that holds what is asked for: contexts
#: are few, and what retires is found by them; the worlds of the asked jobs are counted in order.
FEW = {"retirement": ("_contexts",), "steps": ("reached", "of_worlds", "redone", "(subquery")}


@contextmanager
def recorded() -> Iterator[Asked]:
    """Every statement that reaches a database."""
    asked: Asked = []

    def note(
        _: object, __: object, statement: str, given: tuple[object, ...], *___: object
    ) -> None:
        asked.append((statement, given))

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


@pytest.mark.parametrize("question", QUESTIONS)
def test_is_answered_by_an_index(question: str, sqlite_url: str, tmp_path: Path) -> None:
    stores = SqlStores(sqlite_url)
    with recorded() as asked, stores.transaction() as t:
        QUESTIONS[question](t)
    stores.close()
    with closing(sqlite3.connect(tmp_path / "brain.db")) as connection:
        steps = [
            step[-1]
            for statement, given in asked
            if statement.startswith(("SELECT", "INSERT", "DELETE"))
            for step in connection.execute(f"EXPLAIN QUERY PLAN {statement}", given)
        ]
    assert steps
    few = ("json_each", *FEW.get(question, ()))
    scans = [step for step in steps if step.startswith("SCAN") and not any(f in step for f in few)]
    assert not scans
