"""Tokens, signing in and out, and the audit log."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from urllib.parse import quote

from anyio import to_thread
from fastapi import Query, Request, Response

from brain import errors
from brain.api import auth, orders, routers
from brain.api.acting import Act
from brain.api.deps import Context, Here, OpenBody, PageSize, Who, answer, asked
from brain.api.problems import problems
from brain.api.spans import Instant, range_of
from brain.errors import BadInput, NotFound, NotSignedIn
from brain.ports import Transaction
from brain.types.record import AuditEntry, Role, Token
from brain.views import NewToken, Page, SignInCode, TokenView

router = routers.router("access")

#: Most characters of a person's name.
_LONGEST_NAME = 100
#: Longest life of a token that expires, in days.
MOST_DAYS = 36_500


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """The token to create: a name, a role, and days until it expires (None: never)."""

    name: str
    role: str
    days: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """A one-time code."""

    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeRequest:
    """The person for whom to create a sign-in code; by default the caller."""

    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedIn:
    """The person to whom a session belongs."""

    who: str
    role: str


@router.get("/tokens", response_model=Page[TokenView], responses=problems())
def tokens(here: Here, who: Who) -> Response:
    """Return all tokens, newest first, without their secrets."""
    with here.stores.transaction(read_only=True) as tx:
        return answer(Page(items=tuple(_view(token) for token in tx.access.tokens())))


@router.post(
    "/tokens", response_model=NewToken, status_code=201, responses=problems(errors.BadInput)
)
def mint(here: Here, who: Who, act: Act) -> Response:
    """Create a token; only this answer contains its secret. Tokens of agents are created by another
    route, for each job.
    """
    wanted = asked(act.body, TokenRequest)
    role = _role(wanted)
    if not wanted.name.strip():
        raise BadInput("name is empty; name the token's owner", field="name")
    _check_name(wanted.name)
    if wanted.days is not None and not 0 < wanted.days <= MOST_DAYS:
        raise BadInput(
            f"days {wanted.days:g} must be more than 0 and at most {MOST_DAYS}; leave it out "
            "for a token that never expires",
            field="days",
        )

    def minted(tx: Transaction) -> NewToken:
        now = here.clock()
        token, secret = auth.mint(wanted.name, role, now=now, days=wanted.days)
        tx.access.add_token(token)
        _audit(tx, act, "mint token", f"token/{token.id}", after=f"{token.name} ({token.role})")
        return NewToken(id=token.id, name=token.name, secret=secret)

    return act(minted, status=201, secret=True)


@router.delete("/tokens/{token}", status_code=204, responses=problems(NotFound))
def revoke(token: str, here: Here, who: Who, act: Act) -> Response:
    """Revoke a token; its user is signed out immediately."""
    gone: list[Token] = []

    def revoked(tx: Transaction) -> None:
        known = next((one for one in tx.access.tokens() if one.id == token), None)
        if known is None:
            raise NotFound(f"no token has the id {token!r}; GET /api/v1/tokens lists the ids")
        gone.append(known)
        if known.revoked_at is None:
            tx.access.put_token(replace(known, revoked_at=here.clock()))
            _audit(tx, act, "revoke token", f"token/{token}", before=known.name)

    response = act(revoked, status=204)
    for each in gone:
        here.sign_ins.forget(each)
    here.bell.revoked()
    return response


@router.post(
    "/sign-in-codes",
    response_model=SignInCode,
    status_code=201,
    responses=problems(errors.BadInput),
)
def new_code(here: Here, who: Who, act: Act) -> Response:
    """Create a one-time code, valid for ten minutes, that signs a browser in as admin."""
    name = asked(act.body, CodeRequest).name.strip() or who.name
    _check_name(name)

    def coded(tx: Transaction) -> SignInCode:
        code = auth.sign_in_code(name)
        tx.access.put_code(auth.sha256(code), expires_at=here.clock() + auth.CODE_LIFE)
        _audit(tx, act, "mint sign-in code", "session", after=f"for {name}")
        return SignInCode(name=name, code=code, path=f"/#signin={quote(code)}")

    return act(coded, status=201, secret=True)


@router.post(
    "/sign-in",
    response_model=SignedIn,
    responses=problems(NotSignedIn, errors.TooLarge, errors.TooSlow, errors.Overloaded),
)
async def sign_in(request: Request, here: Here, body: OpenBody) -> Response:
    """Exchange a one-time code for a session cookie (HttpOnly, SameSite=Strict)."""
    code = asked(body, SignIn).code
    token, secret = await to_thread.run_sync(
        _exchanged, here, code, _origin(request), limiter=here.sign_in_threads
    )
    response = answer(SignedIn(who=token.name, role=token.role))
    response.set_cookie(
        auth.COOKIE,
        secret,
        max_age=int(timedelta(days=auth.SESSION_DAYS).total_seconds()),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


@router.post("/sign-out", status_code=204, responses=problems())
def sign_out(request: Request, here: Here, who: Who) -> Response:
    """End this session; only an administrator can revoke other tokens."""
    secret, now = request.cookies.get(auth.COOKIE), here.clock()
    with here.stores.transaction() as tx:
        token = tx.access.token(auth.sha256(secret)) if secret else None
        if token is not None and token.revoked_at is None:
            tx.access.put_token(replace(token, revoked_at=now))
            _audit_session(tx, token, "sign out", now, _origin(request))
    here.bell.revoked()
    response = Response(status_code=204)
    response.delete_cookie(auth.COOKIE, httponly=True, samesite="strict")
    return response


@router.get("/audit", response_model=Page[AuditEntry], responses=problems(errors.BadInput))
def audit(
    here: Here,
    who: Who,
    page_size: PageSize = 100,
    page_token: str = Query(""),
    since: Instant | None = None,
    until: Instant | None = None,
    sort: str = orders.AUDIT.parameter,
) -> Response:
    """Return the audit log: each change with its author, target and reason, newest first."""
    is_meant = range_of(since, until)
    with here.stores.transaction(read_only=True) as tx:
        page = orders.AUDIT.page(
            tx.audit.page,
            sort=sort,
            page_token=page_token,
            size=page_size,
            wanted=lambda entry: is_meant(entry.at),
        )
        return answer(page)


def _exchanged(here: Context, code: str, origin: str) -> tuple[Token, str]:
    now = here.clock()
    with here.stores.transaction() as tx:
        if not tx.access.take_code(auth.sha256(code), now=now):
            raise NotSignedIn(
                "the sign-in code is unknown, used or expired; create another with `brain "
                "sign-in` or POST /api/v1/sign-in-codes"
            )
        name = auth.name_in(code)
        token, secret = auth.mint(name, Role.ADMIN, now=now, days=auth.SESSION_DAYS)
        tx.access.add_token(token)
        _audit_session(tx, token, "sign in", now, origin)
    return token, secret


def _origin(request: Request) -> str:
    return f"from {request.client.host}" if request.client else ""


def _audit_session(tx: Transaction, token: Token, action: str, now: datetime, origin: str) -> None:
    entry = AuditEntry(at=now, actor=token.name, action=action, target="session", after=origin)
    tx.audit.add(entry)


def _check_name(name: str) -> None:
    if len(name) > _LONGEST_NAME or not name.isprintable():
        raise BadInput(
            f"name {name!r:.80} is longer than {_LONGEST_NAME} characters or contains invisible "
            "characters; give a short name for the person or program that will sign in",
            field="name",
        )


def _role(wanted: TokenRequest) -> Role:
    roles = [role.value for role in Role if role is not Role.AGENT]
    if wanted.role not in roles:
        raise BadInput(
            f"role {wanted.role!r} does not exist; choose one of {', '.join(roles)}", field="role"
        )
    return Role(wanted.role)


def _audit(
    tx: Transaction, act: Act, action: str, target: str, *, before: str = "", after: str = ""
) -> None:
    tx.audit.add(
        AuditEntry(
            at=act.here.clock(),
            actor=act.who.name,
            action=action,
            target=target,
            before=before,
            after=after,
        )
    )


def _view(token: Token) -> TokenView:
    return TokenView(
        id=token.id,
        name=token.name,
        role=token.role,
        job=token.job,
        created_at=token.created_at,
        expires_at=token.expires_at,
        revoked_at=token.revoked_at,
        last_used_at=token.last_used_at,
    )
