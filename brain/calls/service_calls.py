"""The operations on the service as a whole."""

from datetime import datetime

from brain.calls.making import V1, get, part, post
from brain.client import Call
from brain.types.digest import Digest
from brain.types.pool import Freeze, FreezeScope
from brain.types.record import AuditEntry
from brain.types.savings import Savings
from brain.views import Health, ModelsView, NewToken, NodeView, Page, SignInCode, TokenView


def savings(*, since: datetime | None = None, until: datetime | None = None) -> Call[Savings]:
    """Read how many accelerator-hours Brain's plans saved between two instants; by default, in the
    last 24 hours.
    """
    span = {"since": since, "until": until}
    given = {name: instant.isoformat() for name, instant in span.items() if instant}
    return get("/savings", Savings, **given)


def digest(*, owner: str = "", week: str = "") -> Call[Digest]:
    """Read what an owner's jobs requested, used, needed and wasted in a week."""
    given = {"owner": owner, "week": week}
    return get("/digest", Digest, **{name: value for name, value in given.items() if value})


def models() -> Call[ModelsView]:
    """Read how well the promises of past plans of all jobs matched the measured throughput."""
    return get("/models", ModelsView)


def events(*, after: int | None = None) -> Call[bytes]:
    """Read events as a stream of server-sent events; pass this call to the client's method
    ``lines``. With ``after``, the stream has only events with a higher id.
    """
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    return Call(method="GET", path=f"{V1}/events", reads=bytes, headers=headers)


def nodes(*, page_token: str = "", sort: str = "") -> Call[Page[NodeView]]:
    """Read a page of nodes, by name."""
    return get("/nodes", Page[NodeView], page_token=page_token, sort=sort)


def freezes() -> Call[Page[Freeze]]:
    return get("/freeze", Page[Freeze])


def freeze(scope: FreezeScope, target: str, *, why: str) -> Call[Page[Freeze]]:
    """Stop Brain from applying the plans of one job, of a project, or of all jobs."""
    return post("/freeze", {"scope": scope, "target": target, "why": why}, Page[Freeze])


def thaw(scope: FreezeScope, target: str) -> Call[Page[Freeze]]:
    """Let Brain apply plans of one job, of a project, or of all jobs again."""
    path = f"{V1}/freeze/{scope}" + (f"/{part(target)}" if target else "")
    return Call(method="DELETE", path=path, reads=Page[Freeze])


def audit(*, page_token: str = "", page_size: int = 100, sort: str = "") -> Call[Page[AuditEntry]]:
    """Read one page of the audit log, newest first: all actions with the people or programs that
    took them.
    """
    query = {"page_size": str(page_size), "page_token": page_token, "sort": sort}
    return get("/audit", Page[AuditEntry], **query)


def tokens() -> Call[Page[TokenView]]:
    """Read all tokens, without their secrets."""
    return get("/tokens", Page[TokenView])


def mint_token(name: str, role: str, *, days: float | None = None) -> Call[NewToken]:
    """Create a token. Only this answer contains the token's secret."""
    return post("/tokens", {"name": name, "role": role, "days": days}, NewToken)


def revoke_token(id: str) -> Call[None]:
    return Call(method="DELETE", path=f"{V1}/tokens/{part(id)}", reads=type(None))


def sign_in_code(name: str) -> Call[SignInCode]:
    """Create a code with which a person signs in to the dashboard; the code works once."""
    return post("/sign-in-codes", {"name": name}, SignInCode)


def health() -> Call[Health]:
    """Read the health of the service, and the name and role of the token that is used."""
    return get("/health", Health)
