"""The operator's view of Brain: Brain's last answer about every job of the pool, and requests to
Brain.

Controllers run in threads, so this client blocks. ``follow`` requests all unfinished jobs every few
seconds and reports each job whose view has changed. Once Brain no longer lists a job, the client
requests the view of this job only one more time, because an ended job never changes.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from brain import calls
from brain.client import Call
from brain.errors import (
    BadInput,
    BrainError,
    Conflict,
    KeyReused,
    NotAllowed,
    NotFound,
    NotSignedIn,
    Overloaded,
    Unavailable,
    UnknownJob,
    UnknownPlan,
)
from brain.types.job import FINISHED, JobCopy, JobId, JobState, ObjectCondition
from brain.types.plan import ScalePlan
from brain.types.resources import PoolName, Resources
from brain.types.world import WorldReport
from brain.views import JobDetail, JobEdit, JobView, PlanView, ResizeRequest

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Errors that a later attempt may not meet: Brain is away, or no longer knows our token.
AWAY = (Unavailable, Overloaded, NotSignedIn)
#: Errors by which Brain refuses a request; the same request is refused again.
REFUSED = (BadInput, Conflict, KeyReused, NotAllowed, NotFound)
_UNFINISHED = ",".join(sorted(state for state in JobState if state not in FINISHED))
#: Pauses between questions grow to so many times the shortest while nothing changes; and while the
#: poll of desired jobs tells of each change of a job or its plans at once.
_SELDOM, _SELDOM_TOLD = 5, 30
#: Seconds in which changes gather before the next question: of any pool, and for each of its jobs.
_GATHER_SECONDS, _GATHER_PER_JOB = 0.1, 0.01
#: Number of jobs whose end is remembered; the client asks Brain about an older one again.
_REMEMBERED = 10_000


class BrainPort(Protocol):
    """``BrainClient``, or its stand-in if the operator runs without Brain."""

    def send(self, call: Call[T], /) -> T:
        """Send one request; raise the same errors as ``BrainClient.send``."""
        ...


class OperatorsBrain:
    """Brain's views of the jobs of one pool, and the requests that the operator sends to Brain."""

    def __init__(
        self, client: BrainPort, pool: str, *, told: Callable[[JobId], None] = lambda job: None
    ) -> None:
        self._client, self._pool = client, PoolName(pool)
        #: Called with every job whose view changed.
        self.told = told
        self._views: Mapping[JobId, JobView] = {}
        #: Held during every change of the views: controllers add jobs while ``look`` lists all of
        #: them.
        self._changing = threading.Lock()
        #: Ends of jobs; the most recent one is last.
        self._ended: dict[JobId, JobView] = {}
        #: The last report to Brain about each job's object.
        self._said: dict[JobId, tuple[ObjectCondition, ...]] = {}
        #: Why the last requests to Brain failed; empty if the last one succeeded.
        self.trouble = "Brain has not been asked yet"
        self._hurried = threading.Event()
        #: True while this operator leads: its poll of desired jobs calls ``hurry`` after news.
        self.polled = False

    @property
    def known(self) -> bool:
        """True if Brain has ever sent its list of jobs."""
        return not self.trouble or bool(self._views)

    def view(self, job: JobId) -> JobView | None:
        """Return Brain's last view of a job; None if Brain does not know this id, or was not asked
        yet.
        """
        return self._ended.get(job) or self._views.get(job)

    def recalled(self, job: JobId) -> JobView | None:
        """Return the view of a job; if the job may have ended before this process started, request
        it from Brain.
        """
        known = self.view(job)
        if known is not None:
            return known
        detail = self.detail(job)
        return self._learn(detail.job) if detail is not None else None

    def views(self) -> Mapping[JobId, JobView]:
        """Return all jobs of the pool that are not finished."""
        return self._views

    def follow(self, stop: threading.Event, seconds: float) -> None:
        """Poll Brain until ``stop`` is set: every ``seconds`` while jobs change, less often while
        none does, and immediately after ``hurry``.
        """
        pause = seconds
        while not stop.is_set():
            self._hurried.clear()
            try:
                changed = self.look()
            except Exception:
                # Without this thread the operator would never hear of any job again.
                log.exception("Brain")
                changed = True
            longest = seconds * (_SELDOM_TOLD if self.polled else _SELDOM)
            pause = seconds if changed else min(2 * pause, longest)
            if self._hurried.wait(pause):
                # Each answer lists all jobs, so changes of many gather meanwhile.
                gather = _GATHER_SECONDS + _GATHER_PER_JOB * len(self._views)
                stop.wait(min(gather, seconds))

    def hurry(self) -> None:
        """Let ``follow`` poll soon: call this if Brain has decided something, or if this process
        should end.
        """
        self._hurried.set()

    def look(self) -> bool:
        """Poll once, and report changes; return True if there were any, or if Brain is
        unreachable.
        """
        try:
            views, before = self._all(), self._views
            for job in before.keys() - views.keys():
                if (view := self._unlisted(job)) is not None:
                    views[job] = view
        except BrainError as why:
            if not self.trouble:
                log.warning("Brain: %s", why)
            self.trouble = str(why)
            return True
        came_back = bool(self.trouble)
        with self._changing:
            # The answer may be older than a job that was added meanwhile.
            learned = {id: view for id, view in self._views.items() if before.get(id) is not view}
            views = {**views, **learned}
            self._views, self.trouble = views, ""
        changed = [
            job
            for job in views.keys() | before.keys()
            if came_back or _gist(self.view(job)) != _gist(before.get(job))
        ]
        for job in changed:
            self._tell(job)
        return bool(changed)

    def _unlisted(self, job: JobId) -> JobView | None:
        """Return the view of a job that the list lacks.

        The job came after the list was made, or has ended, or Brain has no job of this id.
        """
        detail = self.detail(job)
        if detail is None or detail.job.state not in FINISHED:
            return None if detail is None else detail.job
        self._remember(detail.job)
        return None

    def _remember(self, view: JobView) -> None:
        self._ended[view.id] = view
        if len(self._ended) > _REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def _tell(self, job: JobId) -> None:
        try:
            self.told(job)
        except Exception:
            # Without this thread the operator would never hear of any job again.
            log.exception("job %s", job)

    def mirror(
        self,
        job: JobId,
        document: Mapping[str, Any],
        owner: str,
        sizes: Mapping[str, int] | None = None,
    ) -> JobView:
        """Keep Brain's copy of a job up to date.

        ``sizes`` has the number of replicas of each group, if the job has begun; else it is None or
        empty. If Brain does not know a job that has begun, Brain continues the job with these
        sizes.

        Raises:
            BadInput, NameTaken: Brain refuses the copy.
            Unavailable: Brain is unreachable.
        """
        copy = JobCopy(document=document, pool=self._pool, owner=owner, sizes=sizes or {})
        return self._learn(self._client.send(calls.mirror(job, copy)))

    def object_says(self, job: JobId, said: Sequence[ObjectCondition]) -> None:
        """Report the conditions of a job's object if they have changed and Brain knows the job."""
        view, known = self.view(job), self._said.get(job, ())
        if view is None or view.state in FINISHED:
            self._said.pop(job, None)
        elif known != tuple(said):
            try:
                self._client.send(calls.conditions(job, said))
            except BrainError as why:
                # The next look at the job reports them; nothing waits for that.
                log.info("job %s: %s", job, why)
                return
            self._said[job] = tuple(said)

    def detail(self, job: JobId) -> JobDetail | None:
        """Return the details of a job; None if Brain has no job with this id."""
        try:
            return self._client.send(calls.job(job))
        except UnknownJob:
            return None

    def plan(self, job: JobId, generation: int) -> ScalePlan | None:
        """Return one of the job's plans; None if Brain does not know the job or the plan."""
        try:
            return self._client.send(calls.plan(job, generation)).plan
        except (UnknownJob, UnknownPlan):
            return None

    def resize(
        self,
        job: JobId,
        replicas: int,
        why: str,
        key: str,
        by: str,
        *,
        resources: Resources | None = None,
        group: str | None = None,
    ) -> PlanView:
        """Request a size for the job, or for one ``group`` of its replicas.

        A second request with the same ``key`` gets the same answer.

        ``by`` names the requester, as far as the cluster knows. ``resources`` are the amounts that
        each replica should reserve; None keeps the present amounts. If neither ``group`` nor
        ``resources`` is given, Brain reduces a size that does not fit; else Brain refuses it.

        Raises:
            BadInput, Conflict: Brain refuses the request, with the reason.
        """
        if resources is None and group is None:
            request = ResizeRequest(replicas=replicas, why=why, clamp=True, by=by)
            call: Call[PlanView] = calls.resize(job, request)
        else:
            amounts = resources or Resources()
            wanted = JobEdit(
                replicas=replicas,
                cpu_millis=amounts.cpu_millis or None,
                memory_bytes=amounts.memory_bytes or None,
                role=group,
                why=why,
                by=by,
            )
            call = calls.edit(job, wanted)
        return self._client.send(replace(call, headers={"Idempotency-Key": key}))

    def report_world(self, report: WorldReport) -> None:
        self._client.send(calls.report_world(report))
        self.hurry()

    def suspend(self, job: JobId) -> JobView:
        """Request that a job stop at its next safe point."""
        return self._learn(self._client.send(calls.suspend(job)))

    def resume(self, job: JobId) -> JobView:
        return self._learn(self._client.send(calls.resume(job)))

    def cancel(self, job: JobId) -> JobView:
        """End a job for good."""
        return self._learn(self._client.send(calls.cancel(job)))

    def _learn(self, view: JobView) -> JobView:
        self.hurry()
        if view.state in FINISHED:
            self._remember(view)
            return view
        with self._changing:
            self._views = {**self._views, view.id: view}
        return view

    def _all(self) -> dict[JobId, JobView]:
        found: dict[JobId, JobView] = {}
        token = ""
        while True:
            wanted = f"pool:{self._pool} state:{_UNFINISHED}"
            call = calls.jobs(page_token=token, filter=wanted, page_size=500)
            page = self._client.send(call)
            found |= {view.id: view for view in page.items}
            token = page.next_page_token or ""
            if not token:
                return found


def _gist(view: JobView | None) -> object:
    """Return the fields of a view that cluster objects show; none of them changes every second."""
    if view is None:
        return None
    plan = view.plan
    return (
        view.state,
        view.reason,
        view.version,
        view.replicas,
        view.replicas_wished,
        view.epoch,
        view.generation,
        view.failures,
        plan and (plan.generation, plan.version),
    )
