"""``--brain none``: the operator admits jobs and replaces failed replicas, but resizes no job.

``OwnRule`` has the interface of a client of Brain, so the controllers and the loop of desired jobs
work without a change. ``OwnRule`` stores nothing itself: a new operator reads the state of its jobs
from the objects' status and from the pods.
"""

import asyncio
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from re import fullmatch
from typing import Any

from brain import wire
from brain.client import Call
from brain.errors import BadInput, Conflict, Unavailable, UnknownJob, UnknownPlan
from brain.types.job import (
    FINISHED,
    Intent,
    JobCopy,
    JobId,
    JobState,
    OptimizeMode,
    PolicyMode,
)
from brain.types.plan import PlanVerdict
from brain.types.resources import PoolName
from brain.types.roles import WORKER
from brain.types.telemetry import TelemetryLosses
from brain.types.world import DesiredWorld, Replica, ReplicaExit, ReplicaReport, ReplicaState
from brain.typeset import count
from brain.views import DesiredJob, DesiredPool, GroupView, JobDetail, JobView, NewToken, Page
from scaler.kubernetes.kinds.documents import job_document
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.operator.own_job import OwnJob, begun
from scaler.kubernetes.pods.orders import Installation, elastic, owner_of
from scaler.kubernetes.runtime.cluster import Object
from scaler.kubernetes.status.ends import over

_REMEDY = "start the operator with --brain URL"
_BEGUN = (JobState.RUNNING, JobState.DEGRADED)


def reported(job: OwnJob, report: ReplicaReport, now: datetime, *, together: bool = True) -> OwnJob:
    """Return the job, updated by a report on its replicas.

    ``together`` is True if the replicas form one world, which ends as a whole.
    """
    known = {**job.replicas, **{one.id: one for one in report.replicas}}
    job = replace(job, replicas=known)
    if job.state in FINISHED:
        return job
    alive = [one for one in known.values() if one.state is not ReplicaState.EXITED]
    last = max(known.values(), key=_ended, default=None)
    goes_on = alive or (last is not None and last.exit is ReplicaExit.FAILED)
    if _succeeded(known.values()) and (together or not goes_on):
        # The world ended: replicas that still run, or were killed since, have nothing left to do.
        return job.moved(JobState.SUCCEEDED, "all workers ended with exit code 0", now, exit_code=0)
    if alive:
        return _alive(job, alive, report.waiting, now)
    if job.intent is Intent.CANCEL:
        return job.moved(JobState.CANCELLED, "cancelled; all its replicas have stopped", now)
    if job.intent is Intent.SUSPEND:
        return job.moved(JobState.SUSPENDED, "suspended; all its replicas have stopped", now)
    if last is None or not (last.exit is ReplicaExit.FAILED or job.state in _BEGUN):
        return job.moved(job.state, report.waiting or job.reason, now)
    return _all_gone(job, last, now)


def _alive(job: OwnJob, alive: list[Replica], waiting: str | None, now: datetime) -> OwnJob:
    if job.intent is not Intent.RUN:
        return job
    running = sum(one.state is ReplicaState.RUNNING for one in alive)
    if running + _succeeded(job.replicas.values()) >= job.size:
        return job.moved(
            JobState.RUNNING, f"{count(running, 'replica')} run; there is no Brain", now
        )
    state = JobState.DEGRADED if job.state in _BEGUN else job.state
    why = waiting or f"{running} of {count(job.size, 'replica')} run"
    return job.moved(state, why, now)


def _all_gone(job: OwnJob, last: Replica, now: datetime) -> OwnJob:
    if last.exit is ReplicaExit.FAILED:
        why = last.detail or "the job's last replica failed"
        return job.moved(JobState.FAILED, why, now, exit_code=last.exit_code)
    # A failure counts once: the next report finds the job starting.
    failures, limit = job.failures + 1, job.document.restarts.limit
    if failures > limit:
        why = (
            f"the job lost its replicas {failures} times, more often than restarts.limit {limit} "
            "allows; raise the limit and create the job again"
        )
        return job.moved(JobState.FAILED, why, now, failures=failures)
    how = "left" if last.exit is ReplicaExit.LEFT else "was lost"
    why = f"replica {last.id} {how}; another one starts from the checkpoint"
    return job.moved(JobState.STARTING, why, now, failures=failures)


def _succeeded(replicas: Iterable[Replica]) -> int:
    return sum(one.exit is ReplicaExit.SUCCEEDED for one in replicas)


def _ended(replica: Replica) -> tuple[datetime, int]:
    return replica.ended_at or replica.started_at, replica.id


class OwnRule:
    """Answers the operator's requests instead of Brain. Several threads may use it."""

    def __init__(
        self,
        pool: str,
        find: Callable[[JobId], Object | None],
        clock: Callable[[], datetime],
        house: Callable[[], Installation] = Installation,
    ) -> None:
        self._pool, self._find, self._clock, self._house = PoolName(pool), find, clock, house
        self._jobs: dict[JobId, OwnJob] = {}
        self._lock = threading.RLock()
        self._routes: Mapping[str, Callable[..., Any]] = {
            r"GET /pools/[^/]+/wishes": self._wishes,
            r"GET /jobs": self._list,
            r"GET /jobs/([^/:]+)": self._detail,
            r"PUT /jobs/([^/:]+)": self._mirror,
            r"PATCH /jobs/([^/:]+)": partial(self._change, "what each replica reserves"),
            r"POST /jobs/([^/]+)/replicas": self._report,
            r"POST /jobs/([^/]+)/token": self._token,
            r"GET /jobs/([^/]+)/environment": lambda job, call: {},
            r"GET /jobs/([^/]+)/plans/(\d+)": _no_plan,
            r"POST /jobs/([^/]+)/plans": partial(self._change, "the size"),
            r"POST /jobs/([^/:]+):suspend": partial(self._intend, Intent.SUSPEND),
            r"POST /jobs/([^/:]+):resume": partial(self._intend, Intent.RUN),
            r"POST /jobs/([^/:]+):cancel": partial(self._intend, Intent.CANCEL),
        }

    def send(self, call: Call[Any]) -> Any:
        """Answer a request; drop reports that only a Brain uses (nodes, conditions, worlds).

        Raises:
            Unavailable: the request needs a Brain.
            UnknownJob: no job has this id.
            Conflict: the job has ended.
        """
        asked = f"{call.method} {call.path.removeprefix('/api/v1')}"
        for pattern, answer in self._routes.items():
            found = fullmatch(pattern, asked)
            if found is not None:
                with self._lock:
                    return answer(*found.groups(), call)
        return None

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def _wishes(self, call: Call[Any]) -> DesiredPool | None:
        running = [job for job in self._jobs.values() if job.state not in FINISHED]
        version = ".".join(f"{job.id}:{job.version}" for job in running)
        if call.headers.get("If-None-Match") == version:
            return None
        jobs = tuple(map(_wish, running))
        return DesiredPool(pool=self._pool, version=version, jobs=jobs)

    def _list(self, call: Call[Any]) -> Page[JobView]:
        for id in [id for id, job in self._jobs.items() if job.state in FINISHED]:
            if self._find(id) is None:
                # Nobody can ask about it any more.
                del self._jobs[id]
        running = [job for job in self._jobs.values() if job.state not in FINISHED]
        return Page(items=tuple(_view(job, self._pool) for job in running))

    def _detail(self, id: str, call: Call[Any]) -> JobDetail:
        job = self._jobs.get(JobId(id)) or self._ended(JobId(id))
        return JobDetail(
            job=_view(job, self._pool),
            document=wire.document_plain(job.document),
            world=None,
            worlds=(),
            replicas=tuple(job.replicas.values()),
        )

    def _ended(self, id: JobId) -> OwnJob:
        """Return a job that ended before this process began."""
        obj = self._find(id)
        job = read_elastic_job(obj) if obj is not None else None
        if job is None or not over(job):
            raise UnknownJob(f"this operator runs without a Brain, and has no job {id}")
        return begun(job, job_document(job), owner_of(job), self._clock())

    def _mirror(self, id: str, call: Call[Any]) -> JobView:
        assert call.body is not None
        said = wire.decode(call.body, JobCopy)
        document, now = wire.job_document(said.document), self._clock()
        if document.optimize_mode is not OptimizeMode.MANUAL:
            raise Unavailable(
                f"optimizeMode {document.optimize_mode} needs a Brain, and this operator runs "
                f"without one; set optimizeMode: manual, or {_REMEDY}"
            )
        known, obj = self._jobs.get(JobId(id)), self._find(JobId(id))
        if known is None and obj is None:
            raise UnknownJob(f"the ElasticJob of job {id} was deleted")
        if known is None:
            assert obj is not None
            known = begun(read_elastic_job(obj), document, said.owner, now)
        elif known.document != document:
            known = replace(known, document=document, version=known.version + 1)
        return self._put(known)

    def _report(self, id: str, call: Call[Any]) -> None:
        assert call.body is not None
        report = wire.decode(call.body, ReplicaReport)
        self._put(
            reported(self._job(id), report, self._clock(), together=self._together(JobId(id)))
        )

    def _together(self, id: JobId) -> bool:
        """True if the replicas of a job form one world, which ends as a whole."""
        obj = self._find(id)
        try:
            return obj is None or elastic(read_elastic_job(obj), self._house())
        except BadInput:
            # An edit made the object invalid: the job ends with its last replica.
            return False

    def _token(self, id: str, call: Call[Any]) -> NewToken:
        # Agents authenticate each other by this token, with or without Brain.
        return NewToken(id=id, name=f"agents of {id}", secret=f"brn_{secrets.token_urlsafe(32)}")

    def _change(self, what: str, id: str, call: Call[Any]) -> Any:
        self._job(id)
        raise Unavailable(
            f"this operator runs without a Brain, so {what} cannot change; {_REMEDY}, and send "
            "the request again"
        )

    def _intend(self, intent: Intent, id: str, call: Call[Any]) -> JobView:
        job, now = self._job(id), self._clock()
        if job.state in FINISHED:
            raise Conflict(f"job {job.document.name} is {job.state} already")
        alive = any(one.state is not ReplicaState.EXITED for one in job.replicas.values())
        state, reason = job.state, f"asked to {intent}"
        if intent is Intent.RUN:
            state = JobState.STARTING if job.state is JobState.SUSPENDED else job.state
        elif not alive:
            state = JobState.SUSPENDED if intent is Intent.SUSPEND else JobState.CANCELLED
        return self._put(job.moved(state, reason, now, intent=intent))

    def _job(self, id: str) -> OwnJob:
        try:
            return self._jobs[JobId(id)]
        except KeyError:
            raise UnknownJob(f"this operator runs without a Brain, and has no job {id}") from None

    def _put(self, job: OwnJob) -> JobView:
        self._jobs[job.id] = job
        return _view(job, self._pool)


class AsyncOwnRule:
    """``OwnRule`` for asyncio. A poll without news waits for half a second; no change ends it
    earlier.
    """

    def __init__(self, rule: OwnRule) -> None:
        self._rule = rule

    async def __aenter__(self) -> "AsyncOwnRule":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def send(self, call: Call[Any]) -> Any:
        """Answer a request as ``OwnRule.send`` does; a poll without news is answered after half a
        second.
        """
        known = self._rule.send(call)
        if known is None and "wait" in call.query:
            await asyncio.sleep(_POLL_SECONDS)
            return self._rule.send(call)
        return known


#: A poll without new desired jobs waits this many seconds.
_POLL_SECONDS = 0.5


def _wish(job: OwnJob) -> DesiredJob:
    document = job.document
    runs = job.intent is Intent.RUN and job.state is not JobState.SUSPENDED
    return DesiredJob(
        job=job.id,
        name=document.name,
        project=document.project,
        state=job.state,
        wish=DesiredWorld(
            job=job.id,
            generation=job.generation,
            version=job.version,
            intent=job.intent,
            replicas=job.size if runs else 0,
            resources=job.resources,
            roles=job.groups,
            processes_per_replica=document.processes_per_replica,
            unit=document.replicas.unit,
            # A coordinator has no Brain to ask for another size.
            minimum=job.size,
            patience_seconds=0.0,
            restart_limit=document.restarts.limit,
        ),
        document=wire.document_plain(document),
    )


def _view(job: OwnJob, pool: PoolName) -> JobView:
    document = job.document
    running = sum(one.state is ReplicaState.RUNNING for one in job.replicas.values())
    measured: dict[str, Any] = dict.fromkeys(_MEASURED)
    return JobView(
        id=job.id,
        name=document.name,
        project=document.project,
        owner=job.owner,
        pool=pool,
        state=job.state,
        reason=job.reason,
        conditions=(),
        intent=job.intent,
        mode=PolicyMode.OFF,
        optimize_mode=document.optimize_mode,
        failures=job.failures,
        exit_code=job.exit_code,
        created_at=job.created_at,
        updated_at=job.updated_at,
        finished_at=job.finished_at,
        version=job.version,
        replicas_min=document.replicas.min,
        replicas_max=document.replicas.max,
        unit=document.replicas.unit,
        replicas=0 if job.state in FINISHED else running,
        replicas_wished=_wish(job).wish.replicas,
        processes_per_replica=document.processes_per_replica,
        resources=job.resources or document.resources,
        groups=_groups(job),
        epoch=job.epoch,
        generation=job.generation,
        unit_of_throughput="steps/s",
        losses=TelemetryLosses(gaps=0, dropped=0),
        sparkline=(),
        verdict=PlanVerdict.NOT_YET,
        **measured,
    )


def _no_plan(job: str, generation: str, call: Call[Any]) -> None:
    raise UnknownPlan(f"this operator runs without a Brain, and has no plan {generation} of {job}")


def _groups(job: OwnJob) -> tuple[GroupView, ...]:
    if not job.groups or job.state in FINISHED:
        return ()
    amounts = job.resources or job.document.resources
    size = replace(job.document.sized(job.size), resources=amounts, roles=job.groups)
    wished = {WORKER: size.workers} | {name: one.replicas for name, one in job.groups}
    alive = [one for one in job.replicas.values() if one.state is ReplicaState.RUNNING]
    return tuple(
        GroupView(
            name=name,
            replicas=sum(one.role == name for one in alive),
            replicas_wished=count,
            processes_per_replica=size.processes_of(name),
            resources=size.of(name),
        )
        for name, count in wished.items()
    )


#: Fields of a view that only a Brain measures.
_MEASURED: Iterable[str] = (
    "advise_only", "throughput", "promised", "data_wait_share", "cpu_share", "memory_share",
    "gpu_share", "step", "progress", "ends_at", "telemetry_age_seconds", "memory", "plan",
    "decision",
)  # fmt: skip
