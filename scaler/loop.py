"""The scaler's loop: read the desired jobs, observe replicas, decide, act, and report to Brain.

Five asyncio tasks share their data and never wait for each other, so the scaler replaces lost
replicas even while Brain is slow or unreachable.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, ParamSpec, TypeVar, assert_never

from brain import calls
from brain.errors import BrainError, Unavailable
from brain.types.job import FINISHED, Intent, JobId
from brain.types.resources import Node, NodeName, PoolName
from brain.types.world import ReplicaReport
from brain.views import DesiredJob, DesiredPool
from scaler.credentials import AsyncAsked, Credentials
from scaler.desired import DesiredJobs, WishFile, answered
from scaler.pace import USUAL, Pace
from scaler.ports import JobBackend, Observed
from scaler.reconcile import (
    Action,
    Clear,
    Close,
    GiveUp,
    Order,
    Reserve,
    Start,
    Stop,
    Wait,
    decide,
    target,
    unconfirmed,
)
from scaler.reporter import Reporter
from scaler.reports import failed, reported, worth_telling

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

#: Time after which a job at rest is looked at although nobody told of a change.
_REST = timedelta(seconds=30)
#: Pauses between answers with news: of any pool, for each of its jobs, and at most. Every answer
#: lists all jobs, so changes of a large pool gather meanwhile.
_PAUSE_SECONDS, _PAUSE_PER_JOB, _LONGEST_PAUSE = 0.02, 0.005, 2.0


class Scaler:
    """The scaler of one pool. ``run`` returns only when cancelled; replicas continue after its
    end.
    """

    def __init__(
        self,
        client: AsyncAsked,
        backend: JobBackend,
        file: WishFile,
        *,
        pool: str,
        clock: Callable[[], datetime],
        pace: Pace = USUAL,
        spares: Callable[[DesiredJob], int] = lambda wish: 0,
        told: Callable[[], None] = lambda: None,
        apart: bool = False,
    ) -> None:
        """``spares`` returns the number of a job's replicas to keep warm beside the desired ones.

        ``told`` is called after each answer of Brain that has news, and when Brain is away.
        ``apart``: True if the backend makes network requests, so that a separate thread waits for
        it. Meanwhile the loop receives desired jobs and reports.
        """
        self._spares, self._heard = spares, told
        self._call: Callable[..., Awaitable[Any]] = asyncio.to_thread if apart else _here
        self._client, self._backend, self._file = client, backend, file
        self._pool, self._clock, self._pace = PoolName(pool), clock, pace
        self._wishes: DesiredJobs | None = file.load()
        self._credentials = Credentials(client, backend, self._call)
        #: When Brain first said that a job is finished.
        self._finished: dict[JobId, datetime] = {}
        #: When to ask Brain about jobs that are alive here without a desired state.
        self._doubtful: dict[JobId, datetime] = {}
        #: Finished jobs of which nothing is left to look at.
        self._closed: set[JobId] = set()
        #: The last look at each job: desired state, time, and if nothing follows before a change.
        self._looks: dict[JobId, tuple[DesiredJob | None, datetime, bool]] = {}
        #: Jobs of which something may have changed since; None: of any.
        self._stirred: set[JobId | None] = set()
        self._reporter = Reporter(
            client, pace=pace, clock=clock, intent=self._intent, closed=self._closed
        )
        #: The node of a replica that names none: the only node, or none yet.
        nodes = backend.nodes(clock())
        self._node = nodes[0].name if len(nodes) == 1 else NodeName("")
        #: True if an agent ended after Brain last confirmed the desired state of its job.
        self._unsure = False
        self._asked = asyncio.Event()
        self._confirm = asyncio.Event()
        self._wake = asyncio.Event()
        self._wanted = asyncio.Event()

    def wake(self, job: JobId | None = None) -> None:
        """Let the scaler observe its jobs now; call this if something may have happened (a child
        ended, say).

        If ``job`` is given, the scaler observes only that job.
        """
        self._stirred.add(job)
        self._wake.set()

    async def run(self) -> None:
        """Run all tasks until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for work in (self._listen, self._heal, self._prepare, self._tell, self._beat):
                tasks.create_task(self._persist(work), name=work.__name__)

    def look(self, now: datetime, *, every: bool = True) -> None:
        """Observe, decide and act once for each job that needs it.

        These are all unfinished jobs, and every other job whose files or objects must still be
        removed. If ``every`` is False, only changed jobs are observed.
        """
        wishes = self._wishes
        if wishes is None:
            return
        while self._stirred:
            stirred = self._stirred.pop()
            if stirred is None:
                self._looks.clear()
            else:
                self._looks.pop(stirred, None)
        for job in self._concerned(wishes):
            wish = wishes.jobs.get(job)
            if self._holds(job, wish, now, every):
                continue
            order = self._order(wishes, job, now)
            self._looks[job] = wish, now, False
            try:
                self._looks[job] = wish, now, self._reconcile(order, job, now)
            except (BrainError, OSError) as why:
                # A full disk or one unreadable document must not keep other jobs from healing.
                log.error("job %s: %s", job, why)
                with suppress(BrainError, OSError):  # a failed look reports nothing
                    seen = self._backend.observe(job, now)
                    self._note(seen, f"the scaler cannot work: {why}", now)
            except Exception:
                # A bug that one job brings out must not end the healing of all others.
                log.exception("job %s", job)

    def _holds(self, job: JobId, wish: DesiredJob | None, now: datetime, every: bool) -> bool:
        """True if the last look at a job with this desired state holds."""
        wished, looked_at, rests = self._looks.get(job, (None, now, False))
        holds = abs(now - looked_at) < _REST if rests else not every
        return wish is not None and wished is wish and holds

    def _reconcile(self, order: Order, job: JobId, now: datetime) -> bool:
        """Do the next actions; return True if none follows before a change."""
        seen = self._backend.observe(job, now)
        if order.wish is not None:
            lacking = self._credentials.lacking(order.wish) or seen.lacking
            seen = replace(seen, lacking=lacking)
        elif job not in self._finished and any(replica.alive for replica in seen.replicas):
            self._doubtful.setdefault(job, now)
        actions = decide(order, seen, now)
        if order.wish is not None and unconfirmed(order, seen, now):
            self._unsure = True
        for action in actions:
            self._act(action, order, job, now)
        if actions == (Clear(),) and not self._reporter.knows(job):
            # The job ended before this process began: the earlier scaler has told Brain.
            return False
        reasons = [action.reason for action in actions if isinstance(action, Wait)]
        if len(reasons) < len(actions):
            seen = self._backend.observe(job, now)
        given_up = tuple(failed(action) for action in actions if isinstance(action, GiveUp))
        seen = replace(seen, replicas=(*seen.replicas, *given_up))
        self._note(seen, reasons[0] if reasons else None, now)
        whole = order.wish is not None and sum(r.alive for r in seen.replicas) == target(order.wish)
        return whole and seen.steady and not actions

    def _act(self, action: Action, order: Order, job: JobId, now: datetime) -> None:
        match action:
            case Start(replica, _, group):
                assert order.wish is not None
                environment = self._credentials.environment(job)
                self._backend.start(order.wish, replica, environment, now, group=group)
            case Reserve(replica):
                assert order.wish is not None
                self._backend.reserve(order.wish, replica, now)
            case Stop(replica, why, force):
                log.info("%s replica %d of %s: %s", "kill" if force else "stop", replica, job, why)
                self._backend.stop(job, replica, force=force, now=now)
            case Close(replica, exit, detail):
                log.info("replica %d of %s ended as %s: %s", replica, job, exit, detail)
                self._backend.close(job, replica, exit, detail, now)
            case Clear():
                self._backend.clear(job)
                self._credentials.forget(job)
                self._closed.add(job)
            case Wait() | GiveUp():
                pass
            case _:
                assert_never(action)

    def _concerned(self, wishes: DesiredJobs) -> Iterator[JobId]:
        yield from wishes.jobs
        for job in self._backend.jobs():
            if job not in wishes.jobs and job not in self._closed:
                yield job

    def _order(self, wishes: DesiredJobs, job: JobId, now: datetime) -> Order:
        if job in wishes.jobs:
            return _with_spares(wishes.order(job), self._spares)
        # Unless Brain says that the job is finished, no replica ends: the clock stands still.
        return Order(wish=None, since=self._finished.get(job, now))

    def _note(self, seen: Observed, waiting: str | None, now: datetime) -> None:
        replicas = tuple(reported(replica, self._node) for replica in seen.replicas)
        report = ReplicaReport(job=seen.job, replicas=replicas, waiting=waiting, at=now)
        self._reporter.note(report)

    async def _heal(self) -> None:
        # The first look follows a first request to Brain: the state on disk may be long out of
        # date.
        await self._asked.wait()
        due, time = 0.0, asyncio.get_running_loop().time
        while True:
            self._wake.clear()
            every = time() >= due
            if every:
                due = time() + self._pace.look
            await self._call(self.look, self._clock(), every=every)
            self._reporter.announce()
            if self._doubtful:
                self._wanted.set()
            if self._unsure:
                self._unsure = False
                self._confirm.set()
            await _at_most(max(0.0, due - time()), self._wake)

    async def _listen(self) -> None:
        while True:
            # A poll without desired jobs in memory must not wait: there is nothing to compare.
            etag = self._wishes.etag if self._wishes and self._asked.is_set() else None
            try:
                answer = await self._ask(etag)
            finally:
                self._asked.set()
            self._wishes = answered(self._wishes, answer, self._clock())
            self._keep()
            self._wake.set()
            if answer is not None:
                self._wanted.set()
                self._heard()
            # A service that answers at once without news is not asked in a tight loop.
            jobs = len(answer.jobs) if answer is not None else 0
            await asyncio.sleep(min(_PAUSE_SECONDS + jobs * _PAUSE_PER_JOB, _LONGEST_PAUSE))

    async def _ask(self, etag: str | None) -> DesiredPool | None:
        """Wait for news, but not once an agent has ended: whether another one takes its place rests
        on the desired state after that.
        """
        if etag is not None and not self._confirm.is_set():
            call = calls.wishes(self._pool, etag=etag, wait_seconds=self._pace.poll)
            news = asyncio.create_task(self._client.send(call))
            confirm = asyncio.create_task(self._confirm.wait())
            try:
                await asyncio.wait((news, confirm), return_when=asyncio.FIRST_COMPLETED)
                if news.done():
                    return news.result()
            finally:
                news.cancel()
                confirm.cancel()
        self._confirm.clear()
        return await self._client.send(calls.wishes(self._pool, etag=etag))

    def _keep(self) -> None:
        try:
            if self._wishes is not None:
                self._file.keep(self._wishes)
        except OSError as why:
            # Only a restart without Brain would miss the file; running replicas do not need it.
            log.error(
                "the desired state cannot be stored, so a restart of the scaler needs Brain: %s",
                why,
            )

    async def _prepare(self) -> None:
        while True:
            self._wanted.clear()
            away: Unavailable | None = None
            lacking = await self._call(self._lacking)
            for wish in lacking:
                # Each job is tried although Brain is away: a living agent may provide the
                # credentials.
                try:
                    await self._credentials.fetch(wish)
                except Unavailable as why:
                    away = why
                self.wake(wish.job)
            doubtful = list(self._doubtful.items())
            for job in [job for job, since in doubtful if since <= self._clock()]:
                await self._ask_about(job)
            if away is not None:
                raise away
            # Without a new desired state nobody loses credentials.
            await _at_most(self._pace.look if lacking else self._pace.doubt, self._wanted)

    def _lacking(self) -> list[DesiredJob]:
        """Return desired jobs that need credentials to start."""
        jobs = self._wishes.jobs.values() if self._wishes else ()
        return [wish for wish in jobs if target(wish) and self._credentials.lacking(wish)]

    async def _ask_about(self, job: JobId) -> None:
        """Ask whether an agent's job is finished.

        A job that Brain does not know is left alone.
        """
        self._doubtful[job] = self._clock() + timedelta(seconds=self._pace.doubt)
        try:
            detail = await self._client.send(calls.job(job))
        except Unavailable:
            raise
        except BrainError as why:
            log.warning(
                "agents of job %s run here, and the scaler leaves them alone, because Brain "
                "answered: %s",
                job,
                why,
            )
            return
        if detail.job.state in FINISHED:
            del self._doubtful[job]
            self._finished[job] = self._clock()
            self._wake.set()

    async def _tell(self) -> None:
        await self._reporter.run()

    def _intent(self, job: JobId) -> Intent | None:
        wanted = self._wishes.jobs.get(job) if self._wishes is not None else None
        return None if wanted is None else wanted.wish.intent

    async def _beat(self) -> None:
        told: dict[NodeName, Node] = {}
        while True:
            for node in self._backend.nodes(self._clock()):
                before = told.get(node.name)
                if before is None or worth_telling(before, node, self._pace.repeat):
                    await self._client.send(calls.put_node(node))
                    told[node.name] = node
            await asyncio.sleep(self._pace.heartbeat)

    async def _persist(self, work: Callable[[], Awaitable[None]]) -> None:
        """Repeat ``work`` with growing pauses while Brain refuses or cannot be reached."""
        pause, since = self._pace.retry, self._clock()
        while True:
            try:
                await work()
            except BrainError as why:
                now = self._clock()
                if isinstance(why, Unavailable):
                    self._reporter.repeat_all()
                    self._heard()
                if (now - since).total_seconds() > 3 * self._pace.retry_longest:
                    pause = self._pace.retry
                log.warning("%s: %s; next attempt after %.1f s", work.__name__, why, pause)
                await asyncio.sleep(pause)
                pause, since = min(2 * pause, self._pace.retry_longest), now


async def _at_most(seconds: float, event: asyncio.Event) -> None:
    # Not `wait_for`: in Python 3.11 it swallows a cancellation that comes together with the event.
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def _here(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function directly, because it never blocks."""
    return call(*args, **kwargs)


def _with_spares(order: Order, spares: Callable[[DesiredJob], int]) -> Order:
    """Return the order with its spares added to the replicas."""
    wish = order.wish
    more = spares(wish) if wish is not None and target(wish) else 0
    if wish is None or not more:
        return order
    wished = replace(wish.wish, replicas=wish.wish.replicas + more)
    return replace(order, wish=replace(wish, wish=wished))
