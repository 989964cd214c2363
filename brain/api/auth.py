"""Authentication and authorisation: tokens, sessions, and the roles that may use each route."""

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import uuid_utils
from starlette.requests import Request

from brain.errors import NotAllowed, NotSignedIn, Unavailable, UnknownJob
from brain.ports import Stores, Transaction
from brain.types.job import Job, JobId, JobState
from brain.types.record import Principal, Role, Token

#: Name of a browser session's cookie; its value is the secret of the session's token.
COOKIE = "brain_session"
SESSION_DAYS = 7.0
#: A sign-in code is valid for this time, and for one use.
CODE_LIFE = timedelta(minutes=10)
#: If a job was not cancelled, its agents' tokens stay valid for this time after its end, so that
#: the last measurements and reports can arrive.
AFTER_JOB = timedelta(minutes=10)
#: ``last_used_at`` is stored again only after this time, so that few read requests write.
_USED_PRECISION = timedelta(minutes=1)
#: Most tokens in the cache.
_MOST_REMEMBERED = 50_000

_ALL = frozenset(Role)
_READERS = frozenset({Role.VIEWER, Role.SUBMITTER, Role.OPERATOR, Role.ADMIN})
_SUBMITTERS = frozenset({Role.SUBMITTER, Role.OPERATOR, Role.ADMIN})
_OPERATORS = frozenset({Role.OPERATOR, Role.ADMIN})
_ADMINS = frozenset({Role.ADMIN})
_PROGRAMS = frozenset({Role.SCALER, Role.AGENT})
_SCALERS = frozenset({Role.SCALER})

#: Routes that need no token.
OPEN = frozenset({"GET /livez", "POST /api/v1/sign-in"})

#: Roles that may use each route. No role may use a route that is missing here.
ACCESS: Mapping[str, frozenset[Role]] = {
    "GET /api/v1/jobs": _READERS | _SCALERS,
    "POST /api/v1/jobs": _SUBMITTERS,
    "POST /api/v1/jobs:estimate": _READERS,
    "POST /api/v1/jobs:cancel": _SUBMITTERS,
    "POST /api/v1/jobs:suspend": _SUBMITTERS,
    "POST /api/v1/jobs:resume": _SUBMITTERS,
    "GET /api/v1/jobs/{job}": _READERS | _PROGRAMS,
    # Jobs of a cluster follow their objects, also when suspended and deleted.
    "PUT /api/v1/jobs/{job}": _SCALERS,
    "PATCH /api/v1/jobs/{job}": _SUBMITTERS | _SCALERS,
    "PUT /api/v1/jobs/{job}/conditions": _SCALERS,
    "POST /api/v1/jobs/{job}:cancel": _SUBMITTERS | _SCALERS,
    "POST /api/v1/jobs/{job}:suspend": _SUBMITTERS | _SCALERS,
    "POST /api/v1/jobs/{job}:resume": _SUBMITTERS | _SCALERS,
    "POST /api/v1/jobs/{job}:lift-advise-only": _SUBMITTERS,
    "GET /api/v1/jobs/{job}/plans": _READERS | _SCALERS,
    "GET /api/v1/jobs/{job}/plans/{generation}": _READERS | _SCALERS,
    # The scaler passes on requests made in the cluster (a ScalePlan object, `kubectl scale`).
    "POST /api/v1/jobs/{job}/plans": _SUBMITTERS | _SCALERS,
    "GET /api/v1/jobs/{job}/recommendation": _READERS,
    "GET /api/v1/jobs/{job}/what-if": _READERS,
    "GET /api/v1/jobs/{job}/report": _READERS,
    "GET /api/v1/jobs/{job}/model": _READERS,
    "GET /api/v1/models": _READERS,
    "GET /api/v1/jobs/{job}/series": _READERS,
    "GET /api/v1/jobs/{job}/workers": _READERS,
    "GET /api/v1/jobs/{job}/events": _READERS,
    "GET /api/v1/jobs/{job}/logs": _READERS,
    "GET /api/v1/jobs/{job}/world": _READERS | _PROGRAMS,
    "POST /api/v1/jobs/{job}/world": _PROGRAMS,
    "POST /api/v1/jobs/{job}/replicas": _SCALERS,
    "GET /api/v1/jobs/{job}/replicas/{replica}/pod": _PROGRAMS,
    "GET /api/v1/jobs/{job}/environment": _SCALERS,
    "POST /api/v1/jobs/{job}/token": _SCALERS,
    "GET /api/v1/savings": _READERS,
    "GET /api/v1/digest": _READERS,
    "GET /api/v1/pools": _READERS | _SCALERS,
    "GET /api/v1/pools/{pool}": _READERS,
    "GET /api/v1/pools/{pool}/wishes": _SCALERS,
    "GET /api/v1/pools/{pool}/requests": _SCALERS,
    "POST /api/v1/pools/{pool}/requests/{request}": _SCALERS,
    "GET /api/v1/policies": _READERS,
    "GET /api/v1/policies/{pool}": _READERS,
    "PUT /api/v1/policies/{pool}": _ADMINS,
    "DELETE /api/v1/policies/{pool}": _ADMINS,
    "GET /api/v1/plans": _READERS,
    "POST /api/v1/plans/{job}/{generation}:approve": _OPERATORS,
    "POST /api/v1/plans/{job}/{generation}:reject": _OPERATORS,
    "POST /api/v1/plans/{job}/{generation}:rollback": _OPERATORS,
    "GET /api/v1/nodes": _READERS | _SCALERS,
    "PUT /api/v1/nodes/{node}": _SCALERS,
    "GET /api/v1/freeze": _READERS | _SCALERS,
    "POST /api/v1/freeze": _OPERATORS,
    "DELETE /api/v1/freeze/{scope}": _OPERATORS,
    "DELETE /api/v1/freeze/{scope}/{target}": _OPERATORS,
    "POST /api/v1/telemetry": _PROGRAMS | _ADMINS,
    "GET /api/v1/events": _READERS,
    "GET /api/v1/audit": _ADMINS | _OPERATORS,
    "GET /api/v1/tokens": _ADMINS,
    "POST /api/v1/tokens": _ADMINS,
    "DELETE /api/v1/tokens/{token}": _ADMINS,
    "POST /api/v1/sign-in-codes": _ADMINS,
    "POST /api/v1/sign-out": _ALL,
    "GET /api/v1/health": _ALL,
    "GET /api/v1/openapi.json": _ALL,
    "GET /readyz": _ALL,
    "GET /metrics": _READERS | _SCALERS,
}


def new_secret() -> str:
    """Return a token's secret: 256 random bits."""
    return "brn_" + secrets.token_urlsafe(32)


def sha256(secret: str | bytes) -> str:
    """Return the SHA-256 of a secret in hexadecimal; random secrets need no slow hash."""
    data = secret.encode() if isinstance(secret, str) else secret
    return hashlib.sha256(data).hexdigest()


def mint(
    name: str,
    role: Role,
    *,
    now: datetime,
    days: float | None = None,
    job: JobId | None = None,
    secret: str | None = None,
) -> tuple[Token, str]:
    """Create a token; return the token as the stores keep it, and its secret.

    The token expires after ``days``; it never expires if ``days`` is None.
    """
    secret = secret or new_secret()
    token = Token(
        id=str(uuid_utils.uuid7()),
        name=name,
        role=role,
        job=job,
        sha256=sha256(secret),
        created_at=now,
        expires_at=None if days is None else now + timedelta(days=days),
    )
    return token, secret


def secret_in(request: Request) -> str | None:
    """Return a request's bearer token; without one, its session cookie; None if the request has
    neither.
    """
    return bearer_in(request.headers.get("authorization", "")) or request.cookies.get(COOKIE)


def check_same_origin(request: Request) -> None:
    """Refuse a state-changing request that a session cookie authenticates, unless one of Brain's
    pages sent it.

    ``check_names`` has already refused an ``Origin`` of another page.

    Raises:
        NotAllowed: the request has neither an ``Origin`` nor ``Sec-Fetch-Site: same-origin``.
    """
    known = request.headers.get("origin") or (
        request.headers.get("sec-fetch-site", "").lower() == "same-origin"
    )
    if not known and not bearer_in(request.headers.get("authorization", "")):
        raise NotAllowed(
            "Brain accepts a session cookie only from the dashboard's own pages, but this request "
            "has no Origin header; send `Authorization: Bearer brn_…` instead"
        )


def bearer_in(authorization: str) -> str:
    """Return the bearer token of an ``Authorization`` header; an empty string if the header has no
    bearer token.
    """
    scheme, _, credentials = authorization.partition(" ")
    return credentials.strip() if scheme.lower() == "bearer" else ""


def sign_in(stores: Stores, secret: str | None, now: datetime) -> Token:
    """Return the token of a secret, and record that the token was used.

    Raises:
        NotSignedIn: the secret is missing, unknown, revoked or expired, or its job has ended.
    """
    token = check(stores, sha256(secret) if secret else "", now)
    if is_use_due(token, now):
        _note_use(stores, token, now)
    return token


def principal_of(token: Token) -> Principal:
    """Return the principal whom a token represents, with the token's role and job."""
    return Principal(name=token.name, role=token.role, job=token.job)


def check(stores: Stores, hashed: str, now: datetime) -> Token:
    """Return the valid token whose secret has this hash; raise ``NotSignedIn`` if there is none."""
    if not hashed:
        raise NotSignedIn(
            "this request needs a token; send `Authorization: Bearer brn_…` or sign in"
        )
    with stores.transaction(read_only=True) as tx:
        token = tx.access.token(hashed)
        job = _job_of(tx, token)
    if token is None or token.revoked_at is not None:
        raise NotSignedIn("the token is unknown or was revoked; create another one")
    if token.expires_at is not None and token.expires_at <= now:
        raise NotSignedIn(
            f"the token {token.name} expired at {token.expires_at:%F %T}Z; create another one"
        )
    if job is not None and _has_ended(job, now):
        raise NotSignedIn(
            f"the token {token.name} ended with its job, which is {job.state}; use another token"
        )
    return token


def is_use_due(token: Token, now: datetime) -> bool:
    """True if a use at ``now`` must be stored, because the last stored use is too long ago."""
    return token.last_used_at is None or now - token.last_used_at > _USED_PRECISION


class SignIns:
    """A cache of tokens; each token is kept as it was when a request signed in with it.

    ``TelemetryWriter`` checks whether a cached token was revoked later. Any thread may use this
    cache.
    """

    def __init__(self) -> None:
        self._tokens: dict[str, Token] = {}

    def get(self, hashed: str, now: datetime) -> Token | None:
        """Return the token whose secret has this hash; None if the token must be read from the
        stores.
        """
        token = self._tokens.get(hashed)
        if token is None or (token.expires_at is not None and token.expires_at <= now):
            return None
        return token

    def keep(self, token: Token) -> None:
        """Cache a valid token."""
        if len(self._tokens) >= _MOST_REMEMBERED:
            self._tokens.clear()
        self._tokens[token.sha256] = token

    def used(self, tokens: Iterable[Token], now: datetime) -> None:
        """Set the last use of these tokens to ``now`` in the cache, as the stores have it."""
        for token in tokens:
            self.keep(replace(token, last_used_at=now))

    def forget(self, token: Token) -> None:
        """Remove a token from the cache, so that the next sign-in reads the stores."""
        self._tokens.pop(token.sha256, None)


def _job_of(tx: Transaction, token: Token | None) -> Job | None:
    if token is None or token.job is None:
        return None
    try:
        return tx.jobs.get(token.job)
    except UnknownJob:
        return None


def _has_ended(job: Job, now: datetime) -> bool:
    """True if a job's agents can no longer sign in: the job was cancelled, or ended more than
    ``AFTER_JOB`` ago.
    """
    if job.finished_at is None:
        return False
    return job.state is JobState.CANCELLED or now - job.finished_at > AFTER_JOB


def sign_in_code(name: str) -> str:
    """Return a new sign-in code for a person; the code contains the person's name."""
    return f"{new_secret()}.{name}"


def name_in(code: str) -> str:
    """Return the person's name in a sign-in code; ``browser`` if the code contains no name."""
    return code.partition(".")[2] or "browser"


def check_route(principal: Principal, route: str) -> None:
    """Raise if the principal's role may not use this route.

    Raises:
        NotAllowed: the message names the roles that may use the route.
    """
    allowed = ACCESS.get(route, frozenset())
    if principal.role not in allowed:
        roles = ", ".join(role for role in Role if role in allowed) or "nobody"
        raise NotAllowed(
            f"{route} needs the role {roles}; {principal.name} has the role {principal.role}; ask "
            "an administrator for a token with such a role"
        )


def check_job(principal: Principal, job: Job, *, acting: bool) -> None:
    """Refuse an agent that acts on another job, and a submitter who acts on another person's job.

    Raises:
        NotAllowed: the message names the required permission.
    """
    if principal.role is Role.AGENT and principal.job != job.id:
        raise NotAllowed(
            f"{principal.name} is the token of an agent of another job; send the token of this job"
        )
    if acting and principal.role is Role.SUBMITTER and job.owner != principal.name:
        raise NotAllowed(
            f"job {job.document.name} belongs to {job.owner}; ask the owner or an operator to "
            "change it"
        )


def _note_use(stores: Stores, token: Token, now: datetime) -> None:
    try:
        with stores.transaction() as tx:
            tx.uses.note([token.id], now)
    except Unavailable:
        # A database that cannot be written can still be read, so a use that cannot be stored is
        # allowed.
        return
