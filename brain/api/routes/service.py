"""The state of the service itself: health, readiness, metrics."""

from collections import Counter
from typing import Annotated

from fastapi import Depends, Request, Response
from fastapi.responses import PlainTextResponse

from brain import __version__, estimates
from brain.api import auth, routers, views
from brain.api.deps import Context, Here, Who, answer, note_lost, principal_of, route_of
from brain.api.metrics import Metrics
from brain.api.problems import problems, request_id_of
from brain.errors import Unavailable
from brain.ports import Transaction
from brain.types.job import JobState, PolicyMode
from brain.types.plan import PlanState
from brain.types.record import Principal
from brain.views import Health

router = routers.router("service", prefix="")
api = routers.router("service")

#: Number of newest plans that the gauge of plans by state counts.
_PLANS = 1_000


@router.get("/livez", include_in_schema=False)
async def livez() -> Response:
    """Return 200 while the process runs and its event loop works."""
    return Response("ok\n", media_type="text/plain")


@router.get("/readyz", response_class=PlainTextResponse, responses=problems(Unavailable))
def readyz(here: Here, who: Who) -> Response:
    """Return 200 if the database answers, with one line for each degraded part of the service."""
    with here.stores.transaction(read_only=True) as tx:
        tx.events.last_id()
    return Response("\n".join(["ok", *here.condition.degraded(), ""]), media_type="text/plain")


async def scraper(request: Request, here: Here) -> Principal:
    """Authenticate a request for metrics.

    While the database cannot be reached, accept a token that has read metrics before, so that an
    alert can report the lost database.
    """
    try:
        who = await principal_of(request, here)
    except Unavailable as lost:
        note_lost(here, lost, request_id_of(request))
        now = here.clock()
        token = here.sign_ins.get(auth.sha256(auth.secret_in(request) or ""), now)
        if token is None:
            raise
        here.rates.take(token.sha256, auth.principal_of(token), now=here.monotonic())
        auth.check_route(auth.principal_of(token), route_of(request))
        return auth.principal_of(token)
    here.sign_ins.keep(request.state.token)
    return who


@router.get("/metrics", response_class=PlainTextResponse, responses=problems(Unavailable))
def metrics(request: Request, here: Here, who: Annotated[Principal, Depends(scraper)]) -> Response:
    """Return counters and gauges in Prometheus' text format.

    While the database cannot be reached, gauges that are computed from it are out of date or
    missing.
    """
    try:
        with here.stores.transaction(read_only=True) as tx:
            _count(here, tx)
        here.metrics.database_bytes.set(here.stores.size_bytes())
    except Unavailable as lost:
        note_lost(here, lost, request_id_of(request))
    here.metrics.body_bytes.set(here.bodies.held_bytes)
    return Response(here.metrics.text(), media_type="text/plain; version=0.0.4")


@api.get("/health", response_model=Health, responses=problems(Unavailable))
def health(here: Here, who: Who) -> Response:
    """Return the state of the service, and the identity of the caller."""
    return answer(_health(here, who))


def _health(here: Context, who: Principal) -> Health:
    with here.stores.transaction(read_only=True) as tx:
        pools = tuple(sorted({*tx.nodes.pools(), *tx.jobs.pools()}))
    url = here.settings.database_url
    return Health(
        version=__version__,
        started_at=here.started_at,
        database="sqlite" if not url else url.partition(":")[0].partition("+")[0],
        database_bytes=here.stores.size_bytes(),
        pools=pools,
        policy_mode=PolicyMode(here.settings.policy_mode),
        degraded=here.condition.degraded(),
        submitters=here.submitters,
        skew_seconds=here.condition.skew_seconds(),
        who=who.name,
        role=who.role,
    )


def _count(here: Context, tx: Transaction) -> None:
    plans = [plan.state for plan in tx.plans.page(after=None, size=_PLANS)]
    for state in PlanState:
        here.metrics.plans.labels(state).set(plans.count(state))
    unfinished = [job for pool in tx.jobs.pools() for job in tx.jobs.unfinished(pool)]
    jobs = [job.state for job in unfinished]
    for job_state in JobState:
        here.metrics.jobs.labels(job_state).set(jobs.count(job_state))
    _count_rounds(here.metrics, tx)
    here.metrics.memory_ahead_seconds.clear()
    here.metrics.memory_off.clear()
    here.metrics.memory_lasts_seconds.clear()
    here.metrics.usage_rejected.clear()
    ids = [job.id for job in unfinished]
    tx.plans.read_ahead(ids)
    tx.worlds.read_ahead(ids)
    tx.fits.read_ahead(ids, estimates.USAGE)
    for job in unfinished:
        named = (job.id, job.document.name)
        advice = estimates.advised_of_many(tx, job, here.settings, here.clock())
        if advice is not None:
            for why, number in advice.rejected_for.items():
                here.metrics.usage_rejected.labels(*named, why).set(number)
            if (lasts := advice.memory_lasts_seconds) is not None:
                here.metrics.memory_lasts_seconds.labels(*named).set(lasts.value)
        held = views.memory(tx.worlds.latest(job.id), here.clock())
        if held is not None:
            here.metrics.memory_ahead_seconds.labels(*named).set(held.ahead_seconds)
            here.metrics.memory_off.labels(*named).set(bool(held.off))


def _count_rounds(metrics: Metrics, tx: Transaction) -> None:
    """Set the gauges of each pool's latest round; drop pools whose jobs have all ended."""
    gauges = (metrics.pool_price, metrics.pool_capacity, metrics.pool_used)
    for gauge in (*gauges, metrics.pool_gap, metrics.pool_short, metrics.pool_shares):
        gauge.clear()
    for pool in tx.jobs.pools():
        last = tx.pools.round(pool)
        if last is None:
            continue
        metrics.pool_gap.labels(pool).set(last.gap)
        for gauge, amounts in zip(gauges, (last.prices, last.capacity, last.used), strict=True):
            for kind, amount in amounts.items():
                gauge.labels(pool, kind).set(amount)
        for project, lack in last.short.items():
            metrics.pool_short.labels(pool, project).set(lack)
        for outcome, count in Counter(share.outcome for share in last.shares).items():
            metrics.pool_shares.labels(pool, outcome).set(count)
