"""Routes for agents and scalers: desired worlds to read, and observed worlds to report."""

from pathlib import Path
from typing import Annotated

from fastapi import Header, Query, Response

from brain import errors, lifecycle, wire
from brain.api import auth, routers, views
from brain.api.acting import Act
from brain.api.deps import AboutJob, Here, OwnToken, answer
from brain.api.events import poll
from brain.api.files import directory_of, read_below
from brain.api.problems import problems
from brain.errors import BadInput, Unavailable
from brain.ports import Transaction
from brain.types.job import Job
from brain.types.record import AuditEntry, Role
from brain.types.resources import PoolName
from brain.types.world import DesiredWorld, ReplicaReport, WorldReport
from brain.views import DesiredPool, NewToken

router = routers.router("worlds")

#: Seconds a long poll may wait.
LONGEST_WAIT = 60.0
#: Days after which an agent's token ends, if its job has not ended before.
_AGENT_DAYS = 90.0

Wait = Annotated[
    float, Query(ge=0, le=LONGEST_WAIT, description=("how many seconds to wait for a change"))
]
Known = Annotated[str | None, Header(alias="If-None-Match")]


@router.get(
    "/jobs/{job}/world",
    response_model=DesiredWorld,
    responses=problems(errors.UnknownJob) | {304: {"description": "unchanged"}},
)
async def world(about: AboutJob, token: OwnToken, wait: Wait = 0, known: Known = None) -> Response:
    """Return the desired world of a job; 304 if it still matches ``If-None-Match`` after ``wait``
    seconds.
    """
    here = about.here

    def read() -> DesiredWorld:
        token.check()
        with here.stores.transaction(read_only=True) as tx:
            return lifecycle.wish(tx, about.job(tx), here.settings)

    wish = await poll(here.bell, read, lambda wish: wish.etag != _bare(known), wait)
    return _unless_known(wish, wish.etag, known)


@router.post(
    "/jobs/{job}/world",
    status_code=204,
    responses=problems(errors.UnknownJob, errors.BadInput, errors.UnknownVersion),
)
def report_world(about: AboutJob, act: Act) -> Response:
    """Report a coordinator's observations. Repeating a report changes nothing."""
    report = wire.decode(act.body, WorldReport)
    wire.check_version(report.v, sender="the agent")

    def reported(tx: Transaction) -> None:
        _expect_same(about.job(tx), report.job)
        lifecycle.world_reported(tx, report, settings=about.here.settings, now=about.here.clock())

    return act(reported, status=204)


@router.post(
    "/jobs/{job}/replicas",
    status_code=204,
    responses=problems(errors.UnknownJob, errors.BadInput, errors.UnknownVersion),
)
def report_replicas(about: AboutJob, act: Act) -> Response:
    """Report a scaler's observations. Repeating a report changes nothing."""
    report = wire.decode(act.body, ReplicaReport)
    wire.check_version(report.v, sender="the scaler")

    def reported(tx: Transaction) -> bool:
        job = about.job(tx)
        _expect_same(job, report.job)
        known = tuple(tx.worlds.replicas(job.id))
        told = lifecycle.replicas_reported(
            tx, report, settings=about.here.settings, now=about.here.clock()
        )
        return told != job or tuple(tx.worlds.replicas(job.id)) != known

    return act(reported, status=204, news=bool)


@router.get(
    "/pools/{pool}/wishes",
    response_model=DesiredPool,
    responses=problems() | {304: {"description": "unchanged"}},
)
async def wishes(
    pool: PoolName, here: Here, token: OwnToken, wait: Wait = 0, known: Known = None
) -> Response:
    """Return the desired state for a scaler; 304 if it still matches ``If-None-Match`` after
    ``wait`` seconds.
    """

    def read() -> DesiredPool:
        token.check()
        with here.stores.transaction(read_only=True) as tx:
            apart = not here.submitters
            return views.wishes(tx, pool, here.settings, keep_apart=apart, known=_bare(known))

    found = await poll(here.bell, read, lambda found: found.version != _bare(known), wait)
    return _unless_known(found, found.version, known)


@router.get(
    "/jobs/{job}/environment",
    response_model=dict[str, str],
    responses=problems(errors.UnknownJob, Unavailable),
)
def environment(about: AboutJob) -> Response:
    """Return the job's environment with its values, including values from files; only the scaler
    may call this.
    """

    def read(tx: Transaction, job: Job) -> dict[str, str]:
        sealed = tx.access.secrets(job.id)
        values = {} if sealed is None else about.here.seal.open(sealed)
        directory = directory_of(job.document)
        return {
            name: _value(name, value, directory, about.here.home) for name, value in values.items()
        }

    response = about.read(read)
    response.headers["Cache-Control"] = "no-store"
    return response


@router.post(
    "/jobs/{job}/token",
    response_model=NewToken,
    status_code=201,
    responses=problems(errors.UnknownJob),
)
def mint_agent_token(about: AboutJob, act: Act) -> Response:
    """Create a token for the agents and the collector of one job; only the scaler may call this."""

    def minted(tx: Transaction) -> NewToken:
        job, now = about.job(tx), about.here.clock()
        name = f"agents of {job.document.name}"
        token, secret = auth.mint(name, Role.AGENT, now=now, days=_AGENT_DAYS, job=job.id)
        tx.access.add_token(token)
        tx.audit.add(
            AuditEntry(
                at=now,
                actor=about.who.name,
                action="mint token",
                target=f"token/{token.id}",
                after=f"{name} (agent)",
            )
        )
        return NewToken(id=token.id, name=name, secret=secret)

    return act(minted, status=201, secret=True)


def _bare(etag: str | None) -> str | None:
    return None if etag is None else etag.removeprefix("W/").strip('"')


def _unless_known(value: object, etag: str, known: str | None) -> Response:
    if _bare(known) == etag:
        return Response(status_code=304, headers={"ETag": f'"{etag}"'})
    return answer(value, etag=etag)


def _expect_same(job: Job, said: str) -> None:
    if job.id != said:
        raise BadInput(
            f"job {said!r} in the body differs from job {job.id} in the path; give the same id in "
            "both",
            field="job",
        )


def _value(name: str, value: object, directory: Path, home: Path) -> str:
    if isinstance(value, str):
        return value
    path = value.get("from_file") if isinstance(value, dict) else None
    return read_below(directory, str(path), barred=home, field=f"environment.{name}.fromFile")
