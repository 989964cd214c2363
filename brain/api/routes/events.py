"""What happened: the event stream of everything, and the events of a job."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from brain import errors
from brain.api import events
from brain.api.deps import AboutJob, Context, Here, Who
from brain.api.problems import problems
from brain.errors import BadInput
from brain.types.record import Event
from brain.views import Page

router = APIRouter(prefix="/api/v1", tags=["watching"])


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses=problems(errors.BadInput) | {200: {"content": {"text/event-stream": {}}}},
)
async def stream(
    here: Here, who: Who, last_event_id: Annotated[str | None, Header()] = None
) -> StreamingResponse:
    """Everything that happens, as server-sent events; ``Last-Event-ID`` resumes.

    ``data`` is an ``Event``; ``event: measured`` names jobs with new samples. Bunches come once a
    second at most.
    """
    if last_event_id is not None and not last_event_id.isdigit():
        raise BadInput(f"Last-Event-ID {last_event_id!r} is no number", field="Last-Event-ID")
    after = None if last_event_id is None else int(last_event_id)
    return StreamingResponse(
        _counted(here, after),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


@router.get(
    "/jobs/{job}/events",
    response_model=Page[Event],
    responses=problems(errors.UnknownJob),
)
def job_events(
    about: AboutJob, after: int = 0, page_size: Annotated[int, Query(ge=1, le=500)] = 500
) -> Response:
    """What happened to a job, oldest first; ``after`` is the id of the last event that is known."""
    return about.read(
        lambda tx, job: Page(items=tuple(tx.events.after(after, limit=page_size, job=job.id)))
    )


async def _counted(here: Context, after: int | None) -> AsyncIterator[bytes]:
    with here.metrics.streams.track_inprogress():
        async for chunk in events.stream(
            here.bell,
            here.stores,
            after=after,
            heartbeat_seconds=here.settings.heartbeat_seconds,
        ):
            yield chunk
