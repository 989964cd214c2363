"""Jobs: submitting, listing, reading and ending them."""

from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any

import uuid_utils
from fastapi import Query, Response
from starlette.concurrency import run_in_threadpool

from brain import errors, estimates, lifecycle, wire
from brain.api import orders, routers, views
from brain.api.acting import Act, Acting
from brain.api.deps import (
    AboutJob,
    Body,
    Context,
    Here,
    JobRequest,
    PageSize,
    Who,
    answer,
    asked,
    json_body,
)
from brain.api.filters import JOB_KEYS, job_matches, parse_filter
from brain.api.problems import problems
from brain.api.queries import Fields, picked
from brain.api.spans import Instant, range_of, span_of
from brain.api.submissions import LOCAL, check_accelerators, check_references, pool_of
from brain.errors import BadInput
from brain.ports import Transaction
from brain.types.estimate import Estimate
from brain.types.job import JobCopy, JobDocument, JobId, ObjectCondition
from brain.types.record import Principal, Role
from brain.types.report import JobReport
from brain.types.resources import PoolName
from brain.views import (
    EstimateRequest,
    JobDetail,
    JobView,
    Page,
    ScalerRequest,
    Series,
    SubmitRequest,
    WorkerView,
)

router = routers.router("jobs")


@router.get("/jobs", response_model=Page[JobView], responses=problems(BadInput))
def jobs(
    here: Here,
    who: Who,
    page_size: PageSize = 100,
    page_token: str = "",
    filter: Annotated[
        str,
        Query(
            description=(
                "Terms that a job must match, such as state:Running,Queued project:x owner:me word"
            )
        ),
    ] = "",
    since: Instant | None = None,
    until: Instant | None = None,
    fields: Fields = "",
    sort: str = orders.JOBS.parameter,
) -> Response:
    """Return jobs, newest first; ``since`` and ``until`` limit the times of submission."""
    wanted, pick = parse_filter(filter, JOB_KEYS, me=who.name), picked(JobView, fields)
    is_meant, now = range_of(since, until), here.clock()
    with here.stores.transaction(read_only=True) as tx:
        page = orders.JOBS.page(
            tx.jobs.page,
            sort=sort,
            page_token=page_token,
            size=page_size,
            wanted=lambda job: (
                is_meant(job.created_at) and job_matches(job, wanted, here.settings.policy_mode)
            ),
        )
        items = views.jobs(tx, page.items, here.settings, now, here.sparklines)
        return answer(pick(Page(items=items, next_page_token=page.next_page_token)))


@router.post(
    "/jobs",
    response_model=JobView,
    status_code=201,
    responses=problems(
        errors.BadInput,
        errors.UnknownField,
        errors.ImpossibleBounds,
        errors.NameTaken,
        errors.Unavailable,
    ),
)
async def submit(
    here: Here,
    who: Who,
    act: Act,
    pool: Annotated[
        str, Query(description=("Pool of the job; default: the only pool that exists, else local"))
    ] = "",
) -> Response:
    """Start a job from its document. Values of ``environment`` are stored encrypted; answers show
    only their names.

    In a cluster's pool, the pool's scaler creates an ElasticJob from the document; if the cluster
    refuses the object, the error quotes the cluster's reason.
    """
    document = wire.job_document(json_body(act.body))
    chosen = await run_in_threadpool(pool_of, here, pool)
    if chosen != LOCAL:
        return await _submit_to(chosen, document, here, who, act)
    check_references(document, who)
    check_accelerators(document)
    return await run_in_threadpool(_submit_here, document, here, who, act)


def _submit_here(document: JobDocument, here: Context, who: Principal, act: Acting) -> Response:
    def submitted(tx: Transaction) -> JobView:
        view = _queued(tx, document, LOCAL, here, who)
        if document.environment:
            tx.access.put_secrets(view.id, here.seal.close(wire.plain(document.environment)))
        return view

    return act(submitted, status=201, etag=_version)


async def _submit_to(
    pool: PoolName, document: JobDocument, here: Context, who: Principal, act: Acting
) -> Response:
    """Have the pool's scaler create the job's object, once Brain itself has accepted the job."""
    if (known := await run_in_threadpool(act.remembered)) is not None:
        return known

    def would(tx: Transaction) -> JobView:
        return _queued(tx, document, pool, here, who)

    try:
        preview = await run_in_threadpool(replace(act, dry_run=True), would, status=201)
    except errors.NameTaken:
        # The name may be taken by this request itself, if its first answer was lost; the scaler
        # knows.
        if act.key is None or act.dry_run:
            raise
    made = SubmitRequest(
        document=wire.document_plain(document),
        owner=who.name,
        key=act.key or "",
        dry_run=act.dry_run,
    )
    async with aclosing(here.relay.ask(pool, ScalerRequest(id="", submit=made))) as parts:
        told = await anext(parts)
    if act.dry_run:
        return preview
    id = told.job or ""

    def shown(tx: Transaction) -> JobView:
        return views.job(tx, tx.jobs.get(id), here.settings, here.clock())

    return await run_in_threadpool(act, shown, status=201, etag=_version)


def _queued(
    tx: Transaction, document: JobDocument, pool: PoolName, here: Context, who: Principal
) -> JobView:
    now = here.clock()
    asks: dict[str, Any] = {"owner": who.name, "pool": pool, "settings": here.settings, "now": now}
    # The scaler of a cluster reads amounts from the object that it made of the document.
    known = pool == LOCAL
    job = lifecycle.submit(
        tx,
        document,
        job_id=JobId(str(uuid_utils.uuid7())),
        **asks,
        amounts=estimates.first_amounts(tx, document, **asks) if known else None,
        confined=who.role is not Role.ADMIN,
    )
    return views.job(tx, job, here.settings, now)


@router.put(
    "/jobs/{job}",
    response_model=JobView,
    responses=problems(
        errors.BadInput, errors.UnknownField, errors.ImpossibleBounds, errors.NameTaken
    ),
)
def mirror(job: str, here: Here, who: Who, act: Act) -> Response:
    """Store a job that an object in a cluster describes, under the object's uid; only the scaler
    may call this.
    """
    said = wire.convert(json_body(act.body), JobCopy)
    document = wire.job_document(said.document)

    def mirrored(tx: Transaction) -> JobView:
        now = here.clock()
        kept = lifecycle.mirror(
            tx,
            document,
            job_id=JobId(job),
            owner=said.owner,
            pool=said.pool,
            sizes=said.sizes,
            settings=here.settings,
            now=now,
        )
        return views.job(tx, kept, here.settings, now)

    return act(mirrored, etag=_version)


@router.put(
    "/jobs/{job}/conditions",
    status_code=204,
    responses=problems(errors.UnknownJob, errors.BadInput),
)
def conditions(about: AboutJob, act: Act) -> Response:
    """Store the conditions of a job's object in its cluster; only the scaler may call this."""
    said = wire.decode(act.body, tuple[ObjectCondition, ...])

    def told(tx: Transaction) -> None:
        lifecycle.object_says(tx, about.job(tx), said)

    # Neither a desired state nor a decision rests on them.
    return act(told, status=204, news=lambda _: False)


@router.post(
    "/jobs:estimate",
    response_model=Estimate,
    responses=problems(errors.BadInput, errors.UnknownField, errors.ImpossibleBounds),
)
def estimate(here: Here, who: Who, body: Body) -> Response:
    """Estimate the needs of a job from similar jobs; nothing is started or stored."""
    wanted = asked(body, EstimateRequest)
    document = wire.job_document(wanted.document)
    with here.stores.transaction(read_only=True) as tx:
        found = estimates.ask(
            tx,
            document,
            wanted.question,
            owner=who.name,
            pool=LOCAL,
            settings=here.settings,
            now=here.clock(),
        )
    return answer(found)


@router.get("/jobs/{job}", response_model=JobDetail, responses=problems(errors.UnknownJob))
def job(about: AboutJob) -> Response:
    """Return one job by id or name; the ETag is its version, for ``If-Match``."""
    here = about.here
    with here.stores.transaction(read_only=True) as tx:
        found = about.job(tx)
        detail = views.detail(tx, found, here.settings, here.clock())
        return answer(detail, etag=str(found.version))


@router.get("/jobs/{job}/report", response_model=JobReport, responses=problems(errors.UnknownJob))
def report(about: AboutJob) -> Response:
    """Return the amounts that each replica reserves, uses and should reserve, and the document to
    submit next time, with the advised amounts.
    """
    here = about.here
    with here.stores.transaction(read_only=True) as tx:
        found = about.job(tx)
        document = views.document(found)
        return answer(estimates.report(tx, found, document, here.settings, here.clock()))


@router.post(
    "/jobs/{job}:cancel",
    response_model=JobView,
    responses=problems(errors.UnknownJob, errors.Conflict, errors.VersionMismatch),
)
def cancel(about: AboutJob, act: Act) -> Response:
    """End a job; it cannot be resumed."""
    return _change(about, act, lifecycle.cancel)


@router.post(
    "/jobs/{job}:suspend",
    response_model=JobView,
    responses=problems(errors.UnknownJob, errors.Conflict, errors.VersionMismatch),
)
def suspend(about: AboutJob, act: Act) -> Response:
    """Stop a job at its next safe point and free its nodes."""
    return _change(about, act, lifecycle.suspend)


@router.post(
    "/jobs/{job}:resume",
    response_model=JobView,
    responses=problems(errors.UnknownJob, errors.Conflict, errors.VersionMismatch),
)
def resume(about: AboutJob, act: Act) -> Response:
    """Resume a suspended job from its checkpoint."""
    return _change(about, act, lifecycle.resume)


@router.post(
    "/jobs/{job}:lift-advise-only",
    response_model=JobView,
    responses=problems(errors.UnknownJob, errors.Conflict, errors.VersionMismatch),
)
def lift_advise_only(about: AboutJob, act: Act) -> Response:
    """Let Brain change an advise-only job again, as its policy mode allows."""
    return _change(about, act, lifecycle.lift_advise_only)


@router.get(
    "/jobs/{job}/series",
    response_model=Series,
    responses=problems(errors.UnknownJob, errors.BadInput),
)
def series(
    about: AboutJob,
    metric: str = "examples_per_second",
    since: Instant | None = None,
    until: Instant | None = None,
    width: Annotated[int, Query(ge=2, le=4000, description="width of the chart in pixels")] = 600,
) -> Response:
    """Return a metric over time, downsampled for ``width`` pixels; by default the last hour."""
    begin, end = span_of(since, until, about.here.clock(), default=timedelta(hours=1))
    return about.read(
        lambda tx, job: views.series(tx, job, metric, since=begin, until=end, width=width)
    )


@router.get(
    "/jobs/{job}/workers", response_model=Page[WorkerView], responses=problems(errors.UnknownJob)
)
def workers(about: AboutJob) -> Response:
    """Return the step time of each worker of the present world, over the last minute, or over
    three steps if they take longer.
    """
    now = about.here.clock()
    return about.read(lambda tx, job: Page(items=views.workers(tx, job, about.here.settings, now)))


def _change(about: JobRequest, act: Act, change: Any) -> Response:
    def changed(tx: Transaction) -> JobView:
        now = about.here.clock()
        job = about.job(tx, acting=True)
        act.check_version(job.version)
        job = change(tx, job, by=about.who.name, now=now)
        return views.job(tx, job, about.here.settings, now)

    return act(changed, etag=_version)


def _version(view: object) -> str:
    assert isinstance(view, JobView)
    return str(view.version)
