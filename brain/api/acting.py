"""Performs requests that change something.

Requests support dry runs and ``If-Match``. A request with an ``Idempotency-Key`` is performed only
once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Header, Query, Request, Response

from brain.api import auth
from brain.api.deps import Body, Context, Here, Who, answer
from brain.errors import BadInput, KeyReused, StalePlan, VersionMismatch
from brain.ports import Transaction
from brain.types.record import Principal

#: Most attempts of an action that conflicts with another writer.
_TRIES = 3

DryRun = Annotated[
    bool,
    Query(
        description=("Check the request and answer as if it were done, without changing anything")
    ),
]


class _Undone(Exception):
    """Rolls back the transaction of a dry run, and carries its answer."""

    def __init__(self, response: Response) -> None:
        super().__init__("dry run")
        self.response = response


@dataclass(frozen=True, slots=True)
class Acting:
    """Performs an action in one transaction.

    Requests with the same idempotency key perform the action once; a dry run changes nothing.
    """

    here: Context
    who: Principal
    route: str
    #: Digest of the query and the body.
    digest: str
    body: bytes
    key: str | None
    expected: str | None
    dry_run: bool

    def __call__(
        self,
        act: Callable[[Transaction], object],
        *,
        status: int = 200,
        etag: Callable[[object], str] | None = None,
        secret: bool = False,
        news: Callable[[Any], bool] = lambda value: True,
    ) -> Response:
        """Call ``act`` and answer with its result.

        ``news`` returns False for a result that wakes neither waiting requests nor the tick.

        A dry run has the same answer as the real action, but stores nothing. A ``secret`` answer is
        stored encrypted, and sent with ``Cache-Control: no-store``.
        """
        for last in (False,) * (_TRIES - 1) + (True,):
            try:
                response = self._once(act, status, etag, secret, news)
                if secret:
                    response.headers["Cache-Control"] = "no-store"
                return response
            except (VersionMismatch, StalePlan):
                # Another writer was faster; the caller's conditions are checked again.
                if last:
                    raise
        raise AssertionError("unreachable")

    def remembered(self) -> Response | None:
        """Return the stored answer to an earlier request with this idempotency key; None if no
        answer is stored.
        """
        with self.here.stores.transaction(read_only=True) as tx:
            return self._remembered(tx, secret=False)

    def check_version(self, version: int, seen: int | None = None) -> None:
        """Refuse to act on an object whose version differs from ``If-Match``, or from ``seen``, the
        version that the request's body names.

        Raises:
            VersionMismatch: the object changed after the client read it.
        """
        wanted = [self.expected.strip('W/"')] if self.expected not in (None, "*") else []
        wanted += [] if seen is None else [str(seen)]
        for one in wanted:
            if one != str(version):
                raise VersionMismatch(
                    f"the object is at version {version}, but the request names version {one}; "
                    "read the object again, then repeat the request with its present version"
                )

    def _once(
        self,
        act: Callable[[Transaction], object],
        status: int,
        etag: Callable[[object], str] | None,
        secret: bool,
        news: Callable[[Any], bool],
    ) -> Response:
        try:
            with self.here.stores.transaction() as tx:
                if (known := self._remembered(tx, secret)) is not None:
                    return known
                value = act(tx)
                response = answer(value, status=status, etag=etag(value) if etag else None)
                if self.dry_run:
                    raise _Undone(response)
                self._remember(tx, response, secret)
        except _Undone as undone:
            return undone.response
        self.here.condition.mend("database")
        if news(value):
            self.here.bell.ring()
            self.here.wake()
        return response

    def _remembered(self, tx: Transaction, secret: bool) -> Response | None:
        if self.key is None or self.dry_run:
            return None
        known = tx.access.answer(self.key, self.who.name, self.route)
        if known is None:
            return None
        digest, status, text = known
        if digest != self.digest:
            raise KeyReused(
                f"Idempotency-Key {self.key!r} was already used for a request with another body or "
                "other query parameters; send this request with a new key"
            )
        body = str(self.here.seal.open(text.encode())["body"]) if secret else text
        headers = {"Idempotency-Replayed": "true"}
        return Response(body, status, headers=headers, media_type="application/json")

    def _remember(self, tx: Transaction, response: Response, secret: bool) -> None:
        if self.key is None:
            return
        text = bytes(response.body).decode()
        tx.access.remember(
            self.key,
            self.who.name,
            self.route,
            body_sha256=self.digest,
            status=response.status_code,
            body=self.here.seal.close({"body": text}).decode() if secret else text,
            at=self.here.clock(),
        )


async def acting(
    request: Request,
    here: Here,
    who: Who,
    body: Body,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
    if_match: Annotated[str | None, Header(min_length=1)] = None,
    dry_run: DryRun = False,
) -> Acting:
    """Return the ``Acting`` with which a route performs its change.

    Raises:
        BadInput: the body has a content type or an encoding that this service does not read.
    """
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if body and encoding not in ("", "identity"):
        raise BadInput(
            f"Content-Encoding {encoding!r} is supported for telemetry only; send the plain body",
            field="Content-Encoding",
        )
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and kind not in ("", "application/json"):
        raise BadInput(
            f"Content-Type {kind!r} is not supported; send application/json", field="Content-Type"
        )
    route = f"{request.method} {request.url.path}"
    digest = auth.sha256(_query(request).encode() + body)
    return Acting(here, who, route, digest, body, idempotency_key, if_match, dry_run)


def _query(request: Request) -> str:
    """Return the query without ``dry_run``, because dry runs neither read nor store answers."""
    told = sorted(pair for pair in request.query_params.multi_items() if pair[0] != "dry_run")
    # Without parameters the digest is that of the body alone, as in earlier releases.
    return f"?{urlencode(told)}\n" if told else ""


Act = Annotated[Acting, Depends(acting)]
