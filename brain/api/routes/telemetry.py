"""``POST /api/v1/telemetry``: 200 means committed.

A batch waits for nothing that decisions hold: it has threads of its own, and its transaction takes
no turn among writers.
"""

from collections.abc import Mapping
from datetime import timedelta

from anyio import to_thread
from fastapi import APIRouter, Request, Response

from brain import errors
from brain.api import ingest
from brain.api.deps import Body, Context, Here, Who, answer
from brain.api.problems import problems
from brain.clocks import beyond_latency
from brain.errors import Overloaded, TooLarge
from brain.types.job import JobId
from brain.types.record import Principal, Role
from brain.types.telemetry import Receipt

router = APIRouter(prefix="/api/v1", tags=["telemetry"])


@router.post(
    "/telemetry",
    response_model=Receipt,
    responses=problems(
        errors.BadInput, errors.TooLarge, errors.UnknownVersion, Overloaded, errors.Unavailable
    ),
)
async def take(request: Request, here: Here, who: Who, body: Body) -> Response:
    """Store a batch; good samples are committed, bad ones come back with reasons.

    JSON or NDJSON, plain or ``Content-Encoding`` gzip or zstd. Repeating a batch changes nothing.
    """
    if not here.ingesting.acquire(blocking=False):
        raise Overloaded("too many batches at once; send this one again", retry_after_seconds=1.0)
    try:
        threads = here.telemetry_threads
        return answer(await to_thread.run_sync(_stored, request, here, who, body, limiter=threads))
    finally:
        here.ingesting.release()


def _stored(request: Request, here: Context, who: Principal, body: bytes) -> Receipt:
    encoding = request.headers.get("content-encoding", "").strip().lower()
    data = ingest.unpacked(body, encoding, here.settings.body_limit_bytes)
    envelope = ingest.envelope_of(data, request.headers.get("content-type", ""))
    if len(envelope.samples) > here.settings.batch_limit:
        raise TooLarge(
            f"samples: {len(envelope.samples)} are over batch_limit {here.settings.batch_limit}; "
            "split the batch",
            field="samples",
        )
    now = here.clock()
    parsed = ingest.parse(envelope, now=now)
    keep = timedelta(seconds=here.settings.raw_seconds)
    refused = _refused(here, who, parsed.jobs)
    judged = ingest.judge(parsed, now=now, keep=keep, refused=refused)
    with here.stores.transaction() as tx:
        receipt = tx.telemetry.add(
            ingest.samples_of(judged),
            received_at=now,
            offset_seconds=judged.offset.total_seconds(),
        )
    _note(here, who, judged, receipt)
    return Receipt(stored=receipt.stored, duplicates=receipt.duplicates, rejected=judged.rejected)


def _refused(here: Context, who: Principal, jobs: frozenset[JobId]) -> Mapping[JobId, str]:
    """The jobs of which samples are not taken from this sender, and why."""
    if who.role is Role.AGENT:
        # The token was made for a job that is known, and jobs are never forgotten.
        return {job: f"job {job} is not the job of this token" for job in jobs - {who.job}}
    with here.stores.transaction(read_only=True) as tx:
        known = tx.jobs.known(jobs)
    return {job: f"job {job!r} is no job's id" for job in jobs - known}


def _note(here: Context, who: Principal, judged: ingest.Judged, receipt: Receipt) -> None:
    here.condition.mend("database")
    offset = beyond_latency(judged.offset).total_seconds()
    here.condition.note_offset(who.name, offset, here.clock())
    here.metrics.samples.labels("stored").inc(receipt.stored)
    here.metrics.samples.labels("duplicate").inc(receipt.duplicates)
    here.metrics.samples.labels("rejected").inc(len(judged.rejected))
    if receipt.stored:
        jobs = frozenset(ingest.job_of(sample) for sample in ingest.samples_of(judged))
        here.bell.ring(measured=jobs)
        here.measured(jobs)
