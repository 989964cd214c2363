"""Events: the stream of all events, and the events of one job."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from brain import errors
from brain.api import events, routers
from brain.api.compression import GzipStream, encoding_for, gzipped_stream
from brain.api.deps import AboutJob, Context, Here, OwnToken, TokenMonitor
from brain.api.fanout import Connected
from brain.api.problems import problems
from brain.errors import BadInput
from brain.types.record import Event
from brain.views import Page

#: Range of numbers with which a store can compare ids of events.
_IDS = range(-(2**63), 2**63)

router = routers.router("watching")


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses=problems(errors.BadInput) | {200: {"content": {"text/event-stream": {}}}},
)
async def stream(
    here: Here,
    request: Request,
    token: OwnToken,
    last_event_id: Annotated[str | None, Header()] = None,
    accept_encoding: Annotated[str, Header(include_in_schema=False)] = "",
) -> StreamingResponse:
    """Stream all events as server-sent events; ``Last-Event-ID`` resumes an interrupted stream.

    ``data`` is an ``Event``; ``event: measured`` names jobs with new samples, ``event: jobs`` has
    the changed fields of rows in the list of jobs, and ``event: changed`` names other lists that
    changed. New events are collected, and sent at most once a second. The stream ends when the
    token that opened it becomes invalid.
    """
    seen = None if last_event_id is None else _number(last_event_id)
    # Read before the answer begins, so that a failure of the stores gets a status of its own.
    after = await run_in_threadpool(here.feed.start, seen)
    headers = {
        "Cache-Control": "no-store",
        "Vary": "Accept-Encoding",
        "X-Accel-Buffering": "no",
    }
    gzip = GzipStream() if encoding_for(accept_encoding, ("gzip",)) else None
    write = getattr(request.state, "write", None)
    connected = None if write is None else Connected(write, token.is_behind, gzip)
    chunks = _counted(here, token, after, connected)
    if gzip is not None:
        headers["Content-Encoding"] = "gzip"
        chunks = gzipped_stream(chunks, gzip)
    return StreamingResponse(chunks, media_type="text/event-stream", headers=headers)


@router.get(
    "/jobs/{job}/events",
    response_model=Page[Event],
    responses=problems(errors.UnknownJob),
)
def job_events(
    about: AboutJob,
    after: Annotated[int, Query(json_schema_extra={"minimum": _IDS[0], "maximum": _IDS[-1]})] = 0,
    page_size: Annotated[int, Query(ge=1, le=500)] = 500,
) -> Response:
    """Return the events of a job, oldest first; ``after`` is the id of the last event that the
    client has.
    """
    _check_id("after", after)
    return about.read(
        lambda tx, job: Page(items=tuple(tx.events.after(after, limit=page_size, job=job.id)))
    )


def _number(last_event_id: str) -> int:
    try:
        return _check_id("Last-Event-ID", int(last_event_id))
    except ValueError as bad:
        # The header is not a number, or has more digits than Python reads.
        said = f"Last-Event-ID {last_event_id[:40]!r} is not the id of an event"
        raise BadInput(f"{said}; leave it out", field="Last-Event-ID") from bad


def _check_id(name: str, id: int) -> int:
    if id not in _IDS:
        raise BadInput(
            f"{name} {id} is not the id of an event, because it has more than 64 bits; "
            "leave the id out",
            field=name,
        )
    return id


async def _counted(
    here: Context, token: TokenMonitor, after: int, connected: Connected | None
) -> AsyncIterator[bytes]:
    with here.metrics.streams.track_inprogress():
        async for chunk in events.stream(
            here.bell,
            here.feed,
            after=after,
            heartbeat_seconds=here.settings.heartbeat_seconds,
            ended=token.ended,
            connected=connected,
        ):
            yield chunk
