"""Plans and decisions: requesting, approving, rejecting, rolling back and explaining them."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Path, Query, Response

from brain import errors, lifecycle
from brain.api import orders, routers, views
from brain.api.acting import Act
from brain.api.deps import AboutJob, Here, PageSize, Who, answer, asked
from brain.api.filters import Filter, parse_filter
from brain.api.pages import HIGHEST_GENERATION, LARGEST, PlanKey, key_of, page_of
from brain.api.problems import problems
from brain.api.queries import Fields, picked
from brain.api.spans import Instant, range_of
from brain.ports import Transaction
from brain.scaling import expected_scaling
from brain.types.job import Job
from brain.types.plan import PlanKind, PlanState, ScalePlan
from brain.types.recommendation import Recommendation
from brain.types.record import Principal, Role
from brain.views import (
    JobEdit,
    ModelsView,
    ModelView,
    Page,
    PlanDecision,
    PlanView,
    ResizeRequest,
    Scaling,
)

router = routers.router("plans")

#: Keys of ``filter`` for plans.
KEYS = {"state": frozenset(PlanState), "kind": frozenset(PlanKind), "job": None, "project": None}

Generation = Annotated[int, Path(ge=0, le=HIGHEST_GENERATION)]

#: Most characters of an author that a scaler names: a program and the name of an object.
_LONGEST_NAME = 600


@router.get("/plans", response_model=Page[PlanView], responses=problems(errors.BadInput))
def plans(
    here: Here,
    who: Who,
    page_size: PageSize = 100,
    page_token: str = "",
    filter: Annotated[
        str,
        Query(
            description=(
                "Terms that a plan must match, such as state:Proposed kind:resize job:name word"
            )
        ),
    ] = "",
    since: Instant | None = None,
    until: Instant | None = None,
    fields: Fields = "",
    sort: str = orders.PLANS.parameter,
) -> Response:
    """Return plans of all jobs, newest first; ``filter=state:Proposed`` lists those that wait for
    approval.

    ``since`` and ``until`` bound the times at which plans were proposed.
    """
    wanted, pick = parse_filter(filter, KEYS, me=who.name), picked(PlanView, fields)
    is_meant = range_of(since, until)
    with here.stores.transaction(read_only=True) as tx:
        page = orders.PLANS.page(
            lambda **asked: _with_jobs(tx, tx.plans.page(**asked)),
            sort=sort,
            page_token=page_token,
            size=page_size,
            wanted=lambda plan: is_meant(plan.created_at) and _matches(tx, plan, wanted),
        )
        items = views.plans(tx, page.items, here.settings, here.clock())
        return answer(pick(Page(items=items, next_page_token=page.next_page_token)))


@router.get(
    "/jobs/{job}/plans",
    response_model=Page[PlanView],
    responses=problems(errors.UnknownJob, errors.BadInput),
)
def plans_of(about: AboutJob, page_size: PageSize = LARGEST, page_token: str = "") -> Response:
    """Return the plans of a job, highest generation first."""
    here = about.here
    after: int | None = key_of(page_token, PlanKey)

    def read(tx: Transaction, job: Job) -> Page[PlanView]:
        page = page_of(
            lambda below, size: tx.plans.page_of(job.id, below=below, size=size),
            lambda plan: plan.generation,
            after=after,
            size=page_size,
        )
        items = views.plans(tx, page.items, here.settings, here.clock())
        return Page(items=items, next_page_token=page.next_page_token)

    return about.read(read)


@router.get(
    "/jobs/{job}/plans/{generation}",
    response_model=PlanView,
    responses=problems(errors.UnknownJob, errors.UnknownPlan),
)
def plan(generation: Generation, about: AboutJob) -> Response:
    """Return one plan of a job."""
    here = about.here

    def read(tx: Transaction, job: Job) -> PlanView:
        found = tx.plans.get(job.id, generation)
        return views.plans(tx, [found], here.settings, here.clock())[0]

    return about.read(read)


@router.post(
    "/jobs/{job}/plans",
    response_model=PlanView,
    status_code=201,
    responses=problems(errors.UnknownJob, errors.BadInput, errors.Conflict, errors.VersionMismatch),
)
def resize(about: AboutJob, act: Act) -> Response:
    """Request a size for a job; the request is accepted, reduced to a size that fits, or
    refused.
    """
    wanted = asked(act.body, ResizeRequest, act.who)
    here = about.here

    def requested(tx: Transaction) -> PlanView:
        now = here.clock()
        job = about.job(tx, acting=True)
        act.check_version(job.version)
        plan = lifecycle.request(
            tx,
            job,
            wanted.replicas,
            by=_asker(about.who, wanted.by),
            why=wanted.why,
            beyond=wanted.clamp,
            settings=here.settings,
            now=now,
        )
        return views.plans(tx, [plan], here.settings, now)[0]

    return act(requested, status=201, etag=_version)


@router.patch(
    "/jobs/{job}",
    response_model=PlanView,
    responses=problems(errors.UnknownJob, errors.BadInput, errors.Conflict, errors.VersionMismatch),
)
def edit(about: AboutJob, act: Act) -> Response:
    """Change the amounts of a job's replicas, its size or its batch size; return the plan that
    makes the change.

    The explanation's ``next_step`` says which changes apply now and which at the safe point.
    """
    wanted = asked(act.body, JobEdit, act.who)
    here, version = about.here, ""

    def edited(tx: Transaction) -> PlanView:
        nonlocal version
        now = here.clock()
        job = about.job(tx, acting=True)
        act.check_version(job.version)
        plan = lifecycle.edit(
            tx,
            job,
            cpu_millis=wanted.cpu_millis,
            memory_bytes=wanted.memory_bytes,
            replicas=wanted.replicas,
            gpus=wanted.gpus,
            batch=wanted.batch,
            role=wanted.role,
            by=_asker(about.who, wanted.by),
            why=wanted.why,
            settings=here.settings,
            now=now,
        )
        version = str(tx.jobs.get(job.id).version)
        return views.plans(tx, [plan], here.settings, now)[0]

    # The version of the job, because the next edit's If-Match refers to the job.
    return act(edited, etag=lambda _: version)


@router.post(
    "/plans/{job}/{generation}:approve",
    response_model=PlanView,
    responses=problems(errors.UnknownPlan, errors.Conflict, errors.VersionMismatch),
)
def approve(generation: Generation, about: AboutJob, act: Act) -> Response:
    """Approve a proposed plan, if its version is still the one that the person saw."""
    return _decide(about, act, generation, lifecycle.approve, settings=about.here.settings)


@router.post(
    "/plans/{job}/{generation}:reject",
    response_model=PlanView,
    responses=problems(errors.UnknownPlan, errors.Conflict, errors.VersionMismatch),
)
def reject(generation: Generation, about: AboutJob, act: Act) -> Response:
    """Reject a proposed or approved plan."""
    return _decide(about, act, generation, lifecycle.reject, why=True)


@router.post(
    "/plans/{job}/{generation}:rollback",
    response_model=PlanView,
    responses=problems(errors.UnknownPlan, errors.Conflict, errors.VersionMismatch),
)
def rollback(generation: Generation, about: AboutJob, act: Act) -> Response:
    """Create a plan that returns the job to the size before its present plan; the answer is the new
    plan.
    """
    settings = about.here.settings
    return _decide(about, act, generation, lifecycle.rollback, settings=settings, why=True)


@router.get(
    "/jobs/{job}/recommendation",
    response_model=Recommendation | None,
    responses=problems(errors.UnknownJob),
)
def recommendation(about: AboutJob) -> Response:
    """Return the latest decision about a job (a change or a hold); null before Brain's first
    decision.
    """
    return about.read(lambda tx, job: tx.plans.decision(job.id))


@router.get("/jobs/{job}/what-if", response_model=Scaling, responses=problems(errors.UnknownJob))
def what_if(about: AboutJob) -> Response:
    """Return the model's predictions for the sizes that the job may have."""
    here = about.here
    return about.read(lambda tx, job: expected_scaling(tx, job, here.settings, here.clock()))


@router.get("/jobs/{job}/model", response_model=ModelView, responses=problems(errors.UnknownJob))
def model(about: AboutJob) -> Response:
    """Return the model of how a job scales: its fit, past promises, and free trials that would
    improve it.
    """
    here = about.here
    return about.read(lambda tx, job: views.model(tx, job, here.settings, here.clock()))


@router.get("/models", response_model=ModelsView, responses=problems())
def models(here: Here, who: Who) -> Response:
    """Compare promised and measured throughput over all jobs.

    The answer includes the share of measurements that fell within the promised 90 % intervals.
    """
    with here.stores.transaction(read_only=True) as tx:
        return answer(views.models(tx))


def _asker(who: Principal, named: str) -> str:
    """Return the author of a request for a size: the token's principal, or the one that a scaler
    names.

    Raises:
        BadInput: another principal than a scaler names an author.
    """
    if not named:
        return who.name
    if who.role is not Role.SCALER or len(named) > _LONGEST_NAME:
        raise errors.BadInput(
            f"by {named[:_LONGEST_NAME]!r} is refused: only a scaler may name another person, and "
            f"the name may have at most {_LONGEST_NAME} characters; leave by out, and Brain takes "
            "your name from the token",
            field="by",
        )
    return named


def _decide(
    about: AboutJob, act: Act, generation: int, decide: Any, *, why: bool = False, **more: Any
) -> Response:
    said = asked(act.body, PlanDecision)
    here = about.here

    def decided(tx: Transaction) -> PlanView:
        now = here.clock()
        job = about.job(tx)
        plan = tx.plans.get(job.id, generation)
        act.check_version(plan.version)
        reason = {"why": said.why} if why else {}
        plan = decide(tx, plan, by=about.who.name, version=said.version, now=now, **reason, **more)
        return views.plans(tx, [plan], here.settings, now)[0]

    return act(decided, etag=_version)


def _version(view: object) -> str:
    assert isinstance(view, PlanView)
    return str(view.plan.version)


def _with_jobs(tx: Transaction, plans: Sequence[ScalePlan]) -> Sequence[ScalePlan]:
    """Read the jobs of all plans at once, because the filter needs the job of each."""
    tx.jobs.read_ahead({plan.job for plan in plans})
    return plans


def _matches(tx: Transaction, plan: ScalePlan, wanted: Filter) -> bool:
    document = tx.jobs.get(plan.job).document
    row = {
        "state": plan.state,
        "kind": plan.kind,
        "job": document.name,
        "project": document.project,
    }
    return wanted.matches(row, f"{document.name} {plan.job} {plan.explanation.reason}")
