"""Requests that a pool's scaler takes and answers, because only the scaler has permissions in its
cluster.
"""

from contextlib import aclosing
from typing import Annotated

from fastapi import Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from brain import errors, wire
from brain.api import routers
from brain.api.deps import AboutJob, Body, Here, Who, answer, json_body
from brain.api.problems import problems
from brain.api.routes.worlds import LONGEST_WAIT
from brain.api.submissions import LOCAL
from brain.types.job import Job
from brain.types.resources import PoolName
from brain.views import Page, PodRequest, PodSeen, ScalerAnswer, ScalerRequest

router = routers.router("worlds")


@router.get(
    "/jobs/{job}/replicas/{replica}/pod",
    response_model=PodSeen,
    responses=problems(errors.UnknownJob, errors.BadInput, errors.Unavailable),
)
async def replica_pod(about: AboutJob, replica: Annotated[int, Path(ge=0)]) -> Response:
    """Return whether, according to the cluster, a replica's pod runs and was not deleted.

    An agent that was paused asks this before it continues. The service passes the question to the
    scaler of the job's pool.
    """

    def found() -> Job:
        with about.here.stores.transaction(read_only=True) as tx:
            return about.job(tx)

    job = await run_in_threadpool(found)
    if job.pool == LOCAL:
        raise errors.BadInput(
            f"pool {job.pool} has no pods, because it is one machine; check whether the "
            "agent still holds the lock on its directory",
            field="job",
        )
    asked = ScalerRequest(id="", pod=PodRequest(job=job.id, replica=replica))
    async with aclosing(about.here.relay.ask(job.pool, asked)) as parts:
        said = (await anext(parts)).pod
    if said is None:
        raise errors.Unavailable(
            f"the scaler of pool {job.pool} does not look up pods; upgrade the operator"
        )
    return answer(said)


@router.get("/pools/{pool}/requests", response_model=Page[ScalerRequest], responses=problems())
async def scaler_requests(
    pool: PoolName,
    request: Request,
    here: Here,
    who: Who,
    wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="seconds to wait")] = 0,
) -> Response:
    """Return the requests that no scaler has taken yet; the scaler that reads a request has to
    answer it.
    """
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
    """Answer a request, or a part of it; 404 if no client is waiting for the answer."""
    await here.relay.answer(pool, request, wire.convert(json_body(body), ScalerAnswer))
    return answer(None, status=204)
