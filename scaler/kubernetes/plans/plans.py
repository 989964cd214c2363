"""ScalePlans: objects with which users request changes, and which show Brain's own plans.

Brain alone assigns generations. An object that a user created is a request. When Brain accepts the
request, the operator writes the plan's target into the object's status. From then on the object
only shows the progress of the plan.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from brain import wire
from brain.errors import BadInput
from brain.types.job import FINISHED, JobId
from brain.types.plan import PlanState
from brain.types.plan import ScalePlan as Standing
from brain.views import JobView, PlanView
from scaler.kubernetes.brain import AWAY, REFUSED, OperatorsBrain
from scaler.kubernetes.kinds import (
    DLROVER,
    ElasticJob,
    PlanCondition,
    Reason,
    ScalePlan,
)
from scaler.kubernetes.kinds.documents import plan_unserved
from scaler.kubernetes.kinds.reading import read_elastic_job, read_scale_plan
from scaler.kubernetes.plans.asking import author
from scaler.kubernetes.plans.migration import Migrations
from scaler.kubernetes.plans.wanted import Wanted, check_served, wanted, within_limits
from scaler.kubernetes.pods import identity
from scaler.kubernetes.runtime import Cluster, Key, Recorder, Result, StatusCondition
from scaler.kubernetes.runtime.cluster import AlreadyExists, Object
from scaler.kubernetes.runtime.status import instant
from scaler.kubernetes.runtime.store import Store
from scaler.kubernetes.status.plan_status import PLAN, SOON_SECONDS, PlanStatus
from scaler.kubernetes.status.progress import (
    AUTO,
    CLOSED,
    SCALE_TYPE,
    PlanRetention,
    age_seconds,
    collected,
    event_of,
    job_key,
    moved,
    moving,
    only_moves,
    own_generation,
    phase_of,
    published,
    target_of,
    unreadable,
    why_refused,
    with_phase,
)

__all__ = ["PLAN", "Plans"]

log = logging.getLogger(__name__)

#: Phase of a plan whose pods are being replaced.
_MOVING = "Applying"
_CHANGES = frozenset({PlanState.APPROVED, PlanState.APPLYING})


class Plans:
    """Reconciles ScalePlans one at a time; ``publish`` creates objects for Brain's own plans."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        plans: Store,
        jobs: Store,
        pods: Store,
        brain: OperatorsBrain,
        events: Recorder,
        clock: Callable[[], datetime],
        keeping: PlanRetention | None = None,
    ) -> None:
        self._cluster, self._plans, self._jobs = cluster, plans, jobs
        self._brain, self._events, self._clock = brain, events, clock
        self._keeping = keeping or PlanRetention()
        self._shown = PlanStatus(cluster, plans, events, self._keeping)
        self._plans.index("job", job_key)
        self._moves = Migrations(cluster, pods)

    def reconcile(self, key: Key) -> Result:
        obj = self._plans.get(key)
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            return Result()
        now = self._clock()
        try:
            plan = read_scale_plan(obj)
        except BadInput as why:
            if unreadable(obj, now, self._keeping):
                return self._shown.delete(obj)
            return self._shown.refuse(obj, Reason.INVALID, str(why), now)
        if plan.status.phase in CLOSED:
            return self._collect(obj, plan, now)
        job = self._job_of(plan)
        if job is None:
            message = (
                f"ElasticJob {plan.job} does not exist in namespace {plan.metadata.namespace}; "
                "name another in spec.ownerJob, or create it"
            )
            return self._shown.refuse(obj, Reason.NO_JOB, message, now, final=False)
        if (job.get("spec") or {}).get("managedBy") == DLROVER and own_generation(plan) is None:
            # DLRover's master follows the plan, and looks at no status.
            return Result()
        if plan.status.generation is None and plan.status.phase == _MOVING:
            return self._follow_move(obj, plan, read_elastic_job(job), now)
        if plan.status.generation is None:
            return self._ask(obj, plan, job, now)
        return self._follow(obj, plan, job, now)

    def concerned(self, job: Object) -> list[Key]:
        name = str(Key(job["metadata"].get("namespace", ""), job["metadata"]["name"]))
        found = self._plans.by("job", name)
        return [Key(each["metadata"]["namespace"], each["metadata"]["name"]) for each in found]

    def publish(self, key: Key) -> Result:
        """Create an object for a job's newest plan if the plan did not come from a ScalePlan."""
        obj = self._jobs.get(key)
        if obj is None:
            return Result()
        view = self._brain.view(JobId(obj["metadata"]["uid"]))
        if view is None or view.plan is None or self._object_of(key, view.plan) is not None:
            return Result()
        if not view.plan.active:
            return Result()
        try:
            self._cluster.create(PLAN, published(obj, view))
        except AlreadyExists:
            log.debug("plan %d of %s is there already", view.plan.generation, key)
        return Result()

    # -- one look --------------------------------------------------------------------------------

    def _ask(self, obj: Object, plan: ScalePlan, job: Object, now: datetime) -> Result:
        """Turn a request into a target, once: the answer to the same key is always the same."""
        if plan.spec.expires_at is not None and now >= plan.spec.expires_at:
            message = f"the plan expired at {plan.spec.expires_at.isoformat()}; create another plan"
            return self._shown.refuse(obj, Reason.EXPIRED, message, now, job=job, phase="Expired")
        own = own_generation(plan)
        if own is not None and plan.metadata.labels.get(SCALE_TYPE) == AUTO:
            return self._adopt(obj, plan, job, own, now)
        view = self._brain.view(JobId(job["metadata"]["uid"]))
        if view is None:
            message = f"Brain does not know job {plan.job} yet; {self._why_unknown(job)}"
            return self._shown.wait(obj, Reason.NO_BRAIN, message, now)
        if view.state in FINISHED:
            message = f"job {plan.job} is {view.state}, so its size cannot change any more"
            return self._shown.refuse(obj, Reason.JOB_ENDED, message, now, job=job)
        if own is not None and own <= view.generation:
            message = (
                f"the plan was made for generation {own}, but the job already has generation "
                f"{view.generation}; check the job, and create a plan without the generation "
                "annotation"
            )
            return self._shown.refuse(obj, Reason.STALE, message, now, job=job)
        return self._request(obj, plan, job, view, now)

    def _request(
        self, obj: Object, plan: ScalePlan, job: Object, view: JobView, now: datetime
    ) -> Result:
        try:
            read = read_elastic_job(job)
            check_served(plan)
            if only_moves(plan, read):
                return self._move(obj, plan, job, read, view, now)
            asked = wanted(plan, read, view)
            size, clamped = within_limits(asked, read)
            why = f"ScalePlan {plan.metadata.name}"
            key = f"{plan.metadata.uid}.{plan.metadata.generation}"
            by = author(self._cluster, PLAN, obj)
            id = JobId(read.metadata.uid)
            answer = self._brain.resize(
                id, size, why, key, by, resources=asked.resources, group=asked.group
            )
        except AWAY as away:
            return self._shown.wait(
                obj, Reason.NO_BRAIN, f"Brain is unreachable; the operator tries again: {away}", now
            )
        except REFUSED as refusal:
            return self._shown.refuse(obj, why_refused(refusal), str(refusal), now, job=job)
        said = [self._taken(asked, clamped, answer), *_not_served(plan, read)]
        extra = {
            "generation": answer.plan.generation,
            "target": target_of(answer.plan, read.scaled),
            "createTime": instant(now),
            "explanation": wire.plain(answer.plan.explanation),
        }
        self._events.record(obj, "Normal", "Accepted", answer.plan.explanation.reason)
        for each in said:
            if each.message:
                self._events.record(obj, "Warning", each.reason, each.message)
        self._shown.show(obj, answer.plan, now, said=said, extra=extra)
        self._shown.belong(obj, job)
        return Result(requeue_after_seconds=SOON_SECONDS)

    def _move(
        self,
        obj: Object,
        plan: ScalePlan,
        owner: Object,
        job: ElasticJob,
        view: JobView,
        now: datetime,
    ) -> Result:
        """Have pods replaced; their number stays, so Brain is not asked."""
        if view.plan is not None and view.plan.state in _CHANGES:
            message = (
                f"plan {view.plan.generation} is still in progress; create this ScalePlan again "
                "after that plan"
            )
            return self._shown.refuse(obj, Reason.ANOTHER_ACTIVE, message, now, job=owner)
        names = self._moves.begin(plan, job)
        self._events.record(obj, "Normal", "Accepted", f"moves {', '.join(names)}")
        said = [*moving(names), *_not_served(plan, job)]
        target: Mapping[str, Any] = {"migrate": {name: {} for name in names}}
        self._shown.state(obj, said, _MOVING, now, {"target": target, "createTime": instant(now)})
        self._shown.belong(obj, owner)
        return Result(requeue_after_seconds=SOON_SECONDS)

    def _follow_move(self, obj: Object, plan: ScalePlan, job: ElasticJob, now: datetime) -> Result:
        if not self._moves.left(plan, job):
            self._events.record(obj, "Normal", "Verified", "all pods have gone")
            self._shown.state(obj, moved(), "Verified", now)
        elif plan.spec.expires_at is not None and now >= plan.spec.expires_at:
            self._moves.stop(plan, job)
            message = "the plan expired before replacements ran elsewhere; the remaining pods stay"
            return self._shown.refuse(obj, Reason.EXPIRED, message, now, phase="Expired")
        return Result(requeue_after_seconds=SOON_SECONDS)

    def _taken(self, asked: Wanted, clamped: str, answer: PlanView) -> StatusCondition:
        plan = answer.plan
        if asked.met(plan.target):
            return StatusCondition(type=PlanCondition.CLAMPED, status=False, reason=Reason.VALID)
        return StatusCondition(
            type=PlanCondition.CLAMPED,
            status=True,
            reason=Reason.NO_QUOTA if clamped else Reason.OUT_OF_BOUNDS,
            message=clamped or plan.explanation.reason,
        )

    def _adopt(
        self, obj: Object, plan: ScalePlan, job: Object, generation: int, now: datetime
    ) -> Result:
        """Adopt a plan that this operator, or an earlier one, published with its generation."""
        found = self._standing(JobId(job["metadata"]["uid"]), generation)
        if found is None:
            message = f"Brain has no plan {generation} of job {plan.job}; delete this object"
            return self._shown.refuse(obj, Reason.STALE, message, now)
        extra = {
            "generation": generation,
            "target": target_of(found, read_elastic_job(job).scaled),
            "createTime": instant(found.created_at),
            "explanation": wire.plain(found.explanation),
        }
        self._shown.show(obj, found, now, extra=extra)
        return Result(requeue_after_seconds=SOON_SECONDS)

    def _follow(self, obj: Object, plan: ScalePlan, job: Object, now: datetime) -> Result:
        """Show the course of the plan that the request became."""
        assert plan.status.generation is not None, "the caller has looked"
        try:
            found = self._standing(JobId(job["metadata"]["uid"]), plan.status.generation)
        except AWAY as away:
            log.info("plan %s: %s", plan.metadata.name, away)
            return Result(requeue_after_seconds=SOON_SECONDS)
        if found is None:
            message = f"Brain has no plan {plan.status.generation} of job {plan.job} any more"
            return self._shown.refuse(obj, Reason.STALE, message, now)
        before = plan.status.phase
        self._shown.show(obj, found, now)
        if before != found.state:
            said = found.outcome.detail or found.explanation.reason
            self._events.record(obj, *event_of(found), said)
        if found.state in CLOSED:
            return self._collect(obj, with_phase(plan, str(found.state)), now)
        return Result(requeue_after_seconds=SOON_SECONDS)

    def _collect(self, obj: Object, plan: ScalePlan, now: datetime) -> Result:
        """Delete finished plans by count and age; the standing plan stays."""
        name = str(Key(plan.metadata.namespace, plan.job))
        finished = [each for each in self._plans.by("job", name) if phase_of(each) in CLOSED]
        stands = self._stands(plan)
        if stands is None:
            # The standing plan is not known yet: no plan is deleted meanwhile.
            return Result(requeue_after_seconds=12 * SOON_SECONDS)
        doomed = collected(finished, stands, now, self._keeping)
        if obj["metadata"]["name"] not in doomed:
            left = self._keeping.seconds - age_seconds(obj, now)
            return (
                Result(requeue_after_seconds=max(1.0, left))
                if left > 0
                else Result(requeue_after_seconds=self._keeping.seconds)
            )
        return self._shown.delete(obj)

    # -- how -------------------------------------------------------------------------------------

    def _stands(self, plan: ScalePlan) -> int | None:
        """Return the generation of the standing plan; -1 if the job is gone, None if unknown."""
        job = self._job_of(plan)
        if job is None:
            return -1
        view = self._brain.view(JobId(job["metadata"]["uid"]))
        return None if view is None else view.generation

    def _job_of(self, plan: ScalePlan) -> Object | None:
        return self._jobs.get(Key(plan.metadata.namespace, plan.job))

    def _standing(self, job: JobId, generation: int) -> Standing | None:
        view = self._brain.view(job)
        if view is not None and view.plan is not None and view.plan.generation == generation:
            return view.plan
        return self._brain.plan(job, generation)

    def _object_of(self, job: Key, plan: Standing) -> Object | None:
        """Return the object that shows a plan of Brain's, if there is one."""
        for each in self._plans.by("job", str(job)):
            shown = (each.get("status") or {}).get("generation")
            own = (each["metadata"].get("annotations") or {}).get(identity.GENERATION)
            if shown == plan.generation or own == str(plan.generation):
                return each
            # A request without an answer yet may be this very plan.
            asked = shown is None and phase_of(each) not in (*CLOSED, _MOVING) and own is None
            if asked and plan.proposed_by != "brain":
                return each
        return None

    def _why_unknown(self, job: Object) -> str:
        message = (job.get("status") or {}).get("message")
        return str(message or self._brain.trouble or "the operator asks Brain again")


def _not_served(plan: ScalePlan, job: ElasticJob) -> list[StatusCondition]:
    """Return the condition for a request that no plan can carry out."""
    found = plan_unserved(plan, job.scaled)
    if not found:
        return []
    return [
        StatusCondition(
            type=PlanCondition.HONOURED,
            status=False,
            reason=Reason.IGNORED,
            message="; ".join(found),
        )
    ]
