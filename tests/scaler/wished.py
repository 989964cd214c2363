"""Builders of wishes and sights."""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from brain.types.job import Intent, JobId, JobState
from brain.types.resources import PoolName, Resources
from brain.types.world import DesiredWorld, ReplicaExit
from brain.views import DesiredJob, DesiredPool
from scaler.local import LocalBackend
from scaler.ports import Observed, ReplicaPhase, ReplicaSeen
from scaler.reconcile import Order
from tests.guard import remove_groups
from tests.patience import Patience

T = TypeVar("T")

JOB = JobId("01998f00-0000-7000-8000-000000000001")
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
AGENT = (sys.executable, str(Path(__file__).parent / "agent_program.py"))


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def wish(
    replicas: int = 1,
    *,
    job: JobId = JOB,
    state: JobState = JobState.RUNNING,
    intent: Intent = Intent.RUN,
    generation: int = 0,
    restart_limit: int = 3,
    **document: Any,
) -> DesiredJob:
    """A job that should have ``replicas`` of one CPU each."""
    return DesiredJob(
        job=job,
        name="digits",
        project="default",
        state=state,
        wish=DesiredWorld(
            job=job,
            generation=generation,
            version=1,
            intent=intent,
            replicas=replicas,
            processes_per_replica=1,
            unit=1,
            minimum=1,
            patience_seconds=60,
            restart_limit=restart_limit,
        ),
        document={"name": "digits", "command": ["python", "train.py"], "directory": "/"} | document,
    )


def pool(*jobs: DesiredJob, version: str = "1") -> DesiredPool:
    return DesiredPool(pool=PoolName("local"), version=version, jobs=jobs)


def order(wished: DesiredJob | None, *, since: float = 100, confirmed: float | None = 0) -> Order:
    """An order first seen ``since`` seconds ago and repeated by Brain ``confirmed`` ago."""
    at = None if confirmed is None else ago(confirmed)
    return Order(wish=wished, since=ago(since), confirmed_at=at)


def replica(
    id: int,
    phase: ReplicaPhase = ReplicaPhase.RUNNING,
    *,
    born: float = 60,
    died: float = 30,
    exit: ReplicaExit | None = None,
    asked: float | None = None,
    generation: int = 0,
    detail: str = "",
    unfit: str = "",
) -> ReplicaSeen:
    """A replica started ``born`` seconds ago; with ``exit`` it ended ``died`` seconds ago."""
    return ReplicaSeen(
        id=id,
        phase=ReplicaPhase.ENDED if exit else phase,
        generation=generation,
        resources=Resources(cpu_millis=1000),
        started_at=ago(born),
        ended_at=ago(died) if exit else None,
        exit=exit,
        detail=detail,
        unfit=unfit,
        asked_at=None if asked is None else ago(asked),
    )


def seen(
    *replicas: ReplicaSeen,
    named: frozenset[int] | set[int] = frozenset(),
    free: int = 8,
    next_id: int | None = None,
    lacking: str | None = None,
) -> Observed:
    """A sight with ``free`` CPUs left."""
    return Observed(
        job=JOB,
        replicas=replicas,
        next_id=max((r.id for r in replicas), default=-1) + 1 if next_id is None else next_id,
        named=frozenset(named),
        free=Resources(cpu_millis=free * 1000, memory_bytes=2**40),
        lacking=lacking,
    )


def eventually(stage: str, look: Callable[[], T | None], *, seconds: float = 60) -> T:
    """Wait until ``look`` finds something; fail naming the stage."""
    patience = Patience(seconds)
    while (found := look()) is None:
        assert not patience.over, f"{stage}: not within {seconds:g} s"
        time.sleep(0.02)
    return found


def end_all(*backends: LocalBackend) -> None:
    """End every agent that these started, and collect them."""

    def nobody() -> bool | None:
        alive = [
            (job, replica.id)
            for backend in backends
            for job in backend.jobs()
            for replica in backend.observe(job, NOW).replicas
            if replica.phase in (ReplicaPhase.STARTING, ReplicaPhase.RUNNING)
        ]
        for job, id in alive:
            for backend in backends:
                backend.stop(job, id, force=True, now=NOW)
        return not alive or None

    eventually("all agents ended", nobody)
    for backend in backends:
        remove_groups(backend._home)
