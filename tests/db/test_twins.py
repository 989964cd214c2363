"""Memory and SQL say the same, whatever is asked of them in whatever order."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from brain.db import SqlStores
from brain.errors import BrainError
from brain.inmemory import MemoryStores
from brain.ports import Stores, Transaction
from brain.series import METRICS
from brain.types.job import JobState
from brain.types.plan import PlanState
from brain.types.resources import PoolName
from tests.builders import JOB, NOW, at, event, finished, host, job, loss, plan, save, throughput

Act = Callable[[Transaction], object]
POOL = PoolName("local")

ids = st.sampled_from("abc")
few = st.integers(0, 4)


def _put_job(t: Transaction, id: str, *, end: bool) -> object:
    known = t.jobs.get(id)
    return t.jobs.put(finished(known, JobState.FAILED) if end else replace(known, failures=9))


def _put_plan(t: Transaction, state: PlanState) -> object:
    return t.plans.put(replace(t.plans.of(JOB)[-1], state=state) if t.plans.of(JOB) else plan(9))


def _read(t: Transaction, seconds: int) -> object:
    series = [
        t.telemetry.series(JOB, metric, since=NOW, until=at(200), points=3) for metric in METRICS
    ]
    rounded = [
        [(each.at, round(each.mean, 6), round(each.low, 6), round(each.high, 6)) for each in drawn]
        for drawn in series
    ]
    seen = (t.telemetry.throughput(JOB, since=at(seconds)), t.telemetry.losses(JOB), rounded)
    return (*seen, t.jobs.unfinished(POOL), t.jobs.page(after=None, size=9), t.plans.of(JOB))


samples = st.one_of(
    st.builds(throughput, few, rank=few, processes=few, steps=few),
    st.builds(lambda n: throughput(n * 40, source="late"), few),
    st.builds(host, few),
    st.builds(save, few, rank=few),
    st.builds(lambda n: loss(n, sequence=n), few),
)
acts: st.SearchStrategy[Act] = st.one_of(
    st.builds(lambda id, name: lambda t: t.jobs.add(job(id, name=name)), ids, ids),
    st.builds(lambda id, end: lambda t: _put_job(t, id, end=end), ids, st.booleans()),
    st.builds(lambda id: lambda t: t.jobs.get(id), ids),
    st.builds(lambda n: lambda t: t.plans.add(plan(n)), few),
    st.builds(lambda state: lambda t: _put_plan(t, state), st.sampled_from(PlanState)),
    st.builds(
        lambda who, now: lambda t: t.leases.acquire(POOL, who, until=at(now + 2), now=at(now)),
        ids,
        few,
    ),
    st.builds(lambda who: lambda t: t.leases.release(POOL, who), ids),
    st.builds(
        lambda some, offset: (
            lambda t: t.telemetry.add(some, received_at=NOW, offset_seconds=offset)
        ),
        st.lists(samples, max_size=6),
        st.sampled_from([0.0, 0.7, 2.5, 60.0, -30.0]),
    ),
    st.builds(
        lambda raw, means, hours: (
            lambda t: t.telemetry.retire(
                raw_before=at(raw * 60),
                means_before=at(means * 60 - 120),
                hours_before=at(hours * 60 - 180),
            )
        ),
        few,
        few,
        few,
    ),
    st.builds(lambda seconds: lambda t: _read(t, seconds), few),
    st.just(lambda t: t.events.add(event())),
    st.builds(lambda n: lambda t: t.events.after(n, limit=2), few),
)


def told(stores: Stores, transaction: list[Act], *, breaks: bool) -> list[Any]:
    """What each act of a transaction answered; one that breaks leaves nothing behind."""
    answers: list[Any] = []
    try:
        with stores.transaction() as t:
            for act in transaction:
                try:
                    answers.append(act(t))
                except BrainError as refused:
                    answers.append((type(refused), str(refused)))
            if breaks:
                raise KeyError
    except KeyError:
        pass
    return answers


@contextmanager
def copied(file: Path) -> Iterator[str]:
    """The URL of a copy of a database."""
    with tempfile.TemporaryDirectory() as directory:
        yield f"sqlite:///{shutil.copy(file, Path(directory) / 'brain.db')}"


@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(st.lists(acts, max_size=8), st.booleans()), max_size=8))
def _agree(file: Path, transactions: list[tuple[list[Act], bool]]) -> None:
    with copied(file) as url:
        memory, sql = MemoryStores(), SqlStores(url)
        try:
            for acts_of, breaks in transactions:
                assert told(memory, acts_of, breaks=breaks) == told(sql, acts_of, breaks=breaks)
        finally:
            sql.close()


def test_memory_and_sql_agree(prepared_sqlite: Path) -> None:
    _agree(prepared_sqlite)
