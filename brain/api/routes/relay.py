"""Requests that a pool's scaler takes and answers, because it has the rights in its cluster."""

from typing import Annotated

from fastapi import Query, Request, Response

from brain import errors, wire
from brain.api import routers
from brain.api.deps import Body, Here, Who, answer, json_body
from brain.api.problems import problems
from brain.api.routes.worlds import LONGEST_WAIT
from brain.types.resources import PoolName
from brain.views import Page, ScalerAnswer, ScalerRequest

router = routers.router("worlds")


@router.get("/pools/{pool}/requests", response_model=Page[ScalerRequest], responses=problems())
async def scaler_requests(
    pool: PoolName,
    request: Request,
    here: Here,
    who: Who,
    wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="seconds to wait")] = 0,
) -> Response:
    """Requests that no scaler has taken yet; the reader of a request answers it."""
    found = await here.relay.take(pool, wait, request.is_disconnected)
    response = answer(Page(items=found))
    # Documents contain the values of their environments.
    response.headers["Cache-Control"] = "no-store"
    return response


@router.post(
    "/pools/{pool}/requests/{request}",
    status_code=204,
    responses=problems(errors.NotFound, errors.BadInput),
)
async def answer_request(
    pool: PoolName, request: str, here: Here, who: Who, body: Body
) -> Response:
    """Answer a request, or a part of it; 404 if no client waits for the answer any more."""
    await here.relay.answer(pool, request, wire.convert(json_body(body), ScalerAnswer))
    return answer(None, status=204)
