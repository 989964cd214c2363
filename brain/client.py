"""BrainClient and AsyncBrainClient: all operations of Brain, behind one interface.

An operation is a value (``Call``): method, path and type of the answer. The two clients differ only
in how they send a call:

    client.send(calls.job("digits"))            # BrainClient
    await client.send(calls.job("digits"))      # AsyncBrainClient

``brain.calls`` has the operations. Errors of the service are raised as the classes of
``brain.errors``; a service that cannot be reached is ``Unavailable``.
"""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx2

from brain import errors, output, wire
from brain.views import Problem

T = TypeVar("T")

#: Characters that a header can hold, and that tokens consist of.
_TOKEN = re.compile(r"[!-~]*")
#: Beginning of the routes whose path has the name of a job.
_ABOUT_JOBS = (
    "/api/v1/jobs/",
    "/api/v1/jobs:cancel",
    "/api/v1/jobs:suspend",
    "/api/v1/jobs:resume",
)
_BY_TYPE: Mapping[str, type[errors.BrainError]] = {
    kind.__name__: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.BrainError)
}


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """An answer of the service, before its body is decoded."""

    status: int
    body: bytes
    etag: str | None
    #: Seconds of ``Retry-After``.
    retry_after_seconds: float | None = None
    #: Address to which a redirect points; empty for any other answer.
    location: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One operation: the request to send, and the type of the answer."""

    method: str
    path: str
    #: Type of the answer; ``type(None)`` for none.
    reads: Any
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Seconds to wait for the answer; long polls need more than the default.
    timeout_seconds: float = 10.0

    def __post_init__(self) -> None:
        """Raise BadInput for an empty name, which would address another route or none."""
        if "" not in (names := self.path.split("/")[1:]):
            return
        if names[names.index("") - 1] == "jobs":
            raise errors.BadInput(
                "the name of the job is empty; `brain jobs` lists the jobs", field="job"
            )
        raise errors.BadInput(f"a name in {self.path} is empty; give the name")

    def read(self, answer: RawAnswer) -> T:
        """Decode an answer into the type that the operation returns.

        Raises:
            BrainError: the error that the answer reports.
            Unavailable: the answer is a redirect, cannot be decoded, or has a body although Brain
                sends none.
        """
        if answer.status >= 300 and answer.status != HTTPStatus.NOT_MODIFIED:
            raise problem(answer)
        if self.reads is type(None):
            if answer.body:
                raise self._strange("Brain sends no body")
            return None  # type: ignore[return-value]
        if self.reads is bytes:
            return answer.body  # type: ignore[return-value]
        if answer.status == HTTPStatus.NOT_MODIFIED:
            return None  # type: ignore[return-value]
        try:
            return wire.decode(answer.body, self.reads)  # type: ignore[no-any-return]
        except errors.BadInput as strange:
            raise self._strange(str(strange)) from strange

    def _strange(self, why: str) -> errors.Unavailable:
        # Not BadInput: a proxy's page says nothing about the request that was sent.
        return errors.Unavailable(
            f"the answer to {self.path} is not from Brain, or from another version of Brain "
            f"({why}); check the URL, and any proxy in front of Brain"
        )


def problem(answer: RawAnswer) -> errors.BrainError:
    """Return the error that a problem+json answer describes; for a redirect, an error that names
    its target.
    """
    if answer.status < 400:
        return errors.Unavailable(
            f"the answer is a redirect to {answer.location or 'an unnamed address'} (HTTP status "
            f"{answer.status}), and Brain never redirects; check the URL, and any proxy in front "
            "of Brain"
        )
    try:
        said = wire.decode(answer.body, Problem)
    except errors.BadInput:
        if answer.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return errors.TooLarge(
                "a proxy in front of Brain refuses requests of this size (HTTP status 413); raise "
                "its limit (nginx: client_max_body_size) to body_limit_bytes of Brain"
            )
        return errors.Unavailable(
            f"the answer has HTTP status {answer.status} and is not from Brain; check the URL, and "
            "any proxy in front of Brain"
        )
    error = error_of(said.type.rsplit("/", 1)[-1], said.detail, said.field)
    if isinstance(error, errors.Overloaded) and answer.retry_after_seconds is not None:
        error.retry_after_seconds = answer.retry_after_seconds
    return error


def error_of(kind: str, detail: str, field: str | None = None) -> errors.BrainError:
    """Return an error of the class with this name; if the class is unknown, return a
    ``BrainError``.
    """
    found = _BY_TYPE.get(kind, errors.BrainError)
    return found(detail, field=field) if issubclass(found, errors.BadInput) else found(detail)


class TokenFile(httpx2.Auth):
    """The token in a file. The file is read again if Brain refuses the token, because a Secret that
    is mounted as a directory changes in place.
    """

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            OSError: the file cannot be read.
            NotSignedIn: the content is no token.
        """
        self._path = path
        self._header = self._read()

    def auth_flow(
        self, request: httpx2.Request
    ) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Send a request with the token, and once more if the file has another token by now."""
        refused = self._header
        request.headers.update(refused)
        response = yield request
        if response.status_code != HTTPStatus.UNAUTHORIZED:
            return
        with suppress(OSError, errors.NotSignedIn):
            self._header = self._read()
        if self._header != refused:
            request.headers.update(self._header)
            yield request

    def _read(self) -> dict[str, str]:
        return _authorization(self._path.read_text(errors="replace").strip())


class BrainClient:
    """Blocking client. ``transport`` exists so that tests need neither network nor patching.

    ``project`` is the project in which job names are looked up; if it is empty, the service's
    default is used.
    """

    def __init__(
        self,
        url: str,
        token: str | TokenFile = "",
        transport: httpx2.BaseTransport | None = None,
        *,
        project: str = "",
    ) -> None:
        self._project = project
        self._http = httpx2.Client(
            base_url=url,
            headers=_authorization(token) if isinstance(token, str) else None,
            auth=token if isinstance(token, TokenFile) else None,
            transport=transport,
            timeout=10.0,
            trust_env=not _here(url),
            verify=not _here(url),
        )

    def __enter__(self) -> BrainClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def send(self, call: Call[T]) -> T:
        """Send one operation, and return its decoded answer.

        Raises:
            Unavailable: the service cannot be reached or does not answer in time.
            BrainError: the error of the service.
        """
        try:
            response = self._http.request(**_arguments(call, self._project))
        except httpx2.HTTPError as silent:
            raise _unreachable(self._http.base_url, silent) from silent
        return call.read(_answer(response))

    @contextmanager
    def lines(self, call: Call[bytes]) -> Iterator[Iterator[str]]:
        """Yield the lines of an operation whose answer may be endless (logs, events)."""
        arguments = _arguments(call, self._project) | {"timeout": httpx2.Timeout(10.0, read=None)}
        try:
            with self._http.stream(**arguments) as response:
                if response.status_code >= 300:
                    response.read()
                    raise problem(_answer(response))
                yield output.lines(response.iter_text())
        except httpx2.HTTPError as silent:
            raise _unreachable(self._http.base_url, silent) from silent


class AsyncBrainClient:
    """The client for programs that use asyncio; it has the same methods as ``BrainClient``."""

    def __init__(
        self,
        url: str,
        token: str | TokenFile = "",
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx2.AsyncClient(
            base_url=url,
            headers=_authorization(token) if isinstance(token, str) else None,
            auth=token if isinstance(token, TokenFile) else None,
            transport=transport,
            timeout=10.0,
            trust_env=not _here(url),
            verify=not _here(url),
        )

    async def __aenter__(self) -> AsyncBrainClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Send one operation, and return its decoded answer."""
        try:
            response = await self._http.request(**_arguments(call))
        except httpx2.HTTPError as silent:
            raise _unreachable(self._http.base_url, silent) from silent
        return call.read(_answer(response))

    @asynccontextmanager
    async def lines(self, call: Call[bytes]) -> AsyncIterator[AsyncIterator[str]]:
        """Yield the lines of an operation whose answer may be endless (logs, events)."""
        arguments = _arguments(call) | {"timeout": httpx2.Timeout(10.0, read=None)}
        try:
            async with self._http.stream(**arguments) as response:
                if response.status_code >= 300:
                    await response.aread()
                    raise problem(_answer(response))
                yield output.lines_as_they_come(response.aiter_text())
        except httpx2.HTTPError as silent:
            raise _unreachable(self._http.base_url, silent) from silent


def idempotency_key() -> dict[str, str]:
    """Return an ``Idempotency-Key`` header: requests that repeat it are carried out only once."""
    return {"Idempotency-Key": uuid.uuid4().hex}


def _here(url: str) -> bool:
    """Return True if a URL is of this machine.

    Requests to this machine use no proxy, and do not check the name in the certificate, which was
    made for another name.

    Raises:
        Unavailable: the text is not a URL.

    >>> _here("http://127.0.0.1:7077"), _here("http://brain.example:7077")
    (True, False)
    """
    try:
        host = httpx2.URL(url).host
    except httpx2.InvalidURL as bad:
        raise errors.Unavailable(
            f"{url!r} is not the URL of a Brain ({bad}); write http://HOST:PORT"
        ) from bad
    return host in ("localhost", "::1") or host.startswith("127.")


def _authorization(token: str) -> dict[str, str]:
    """Return the header with a token.

    Raises:
        NotSignedIn: no header can hold the token. The message does not repeat it, because messages
            are logged.
    """
    if not _TOKEN.fullmatch(token):
        raise errors.NotSignedIn(
            "the token has a space, a line break or a character that no token has; copy the token "
            "again"
        )
    return {"Authorization": f"Bearer {token}"} if token else {}


def _arguments(call: Call[Any], project: str = "") -> dict[str, Any]:
    # Only these routes resolve a job's name; others have no such parameter.
    where = {"project": project} if project and call.path.startswith(_ABOUT_JOBS) else {}
    headers = _propagated() | dict(call.headers)
    if call.body is not None:
        headers.setdefault("Content-Type", "application/json")
    return {
        "method": call.method,
        "url": quote(call.path, safe="/:"),
        "params": where | dict(call.query),
        "content": call.body,
        "headers": headers,
        "timeout": call.timeout_seconds,
    }


def _propagated() -> dict[str, str]:
    """Return the headers by which the service continues the caller's trace; none without a span."""
    # A caller that has a span has imported this; it is no dependency, and its import takes time.
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry import propagate

    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers


def _answer(response: httpx2.Response) -> RawAnswer:
    after = response.headers.get("Retry-After", "")
    return RawAnswer(
        status=response.status_code,
        body=response.content,
        etag=response.headers.get("ETag"),
        retry_after_seconds=float(after) if after.isdecimal() else None,
        location=response.headers.get("Location", ""),
    )


def _unreachable(url: object, cause: Exception) -> errors.Unavailable:
    if isinstance(cause, httpx2.ReadTimeout):
        return errors.Unavailable(
            f"Brain at {url} did not answer in time; it may be busy, so try again"
        )
    why = str(cause) or type(cause).__name__
    return errors.Unavailable(
        f"Brain at {url} cannot be reached: {why}; check that Brain runs there"
    )
