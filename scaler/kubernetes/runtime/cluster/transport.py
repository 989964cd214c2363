"""The port for requests to the API server."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode

JSON = "application/json"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportRequest:
    """One request to the API server."""

    method: str
    path: str
    query: Mapping[str, str | int] | None = None
    body: Mapping[str, Any] | None = None
    content_type: str = JSON

    @property
    def url(self) -> str:
        """Return path and query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def given(query: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of a query that are not empty."""
    return {name: value for name, value in query.items() if value}


def dry(dry_run: bool) -> dict[str, str]:
    """Return the parameter of a request that stores nothing."""
    return {"dryRun": "All"} if dry_run else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportAnswer:
    """One complete answer of the API server."""

    code: int
    body: bytes
    headers: Mapping[str, str]


class Stream(Protocol):
    """An answer in pieces."""

    code: int
    headers: Mapping[str, str]

    def read(self) -> bytes:
        """Return the rest of the answer, if the answer turns out to be no stream."""

    def chunks(self) -> Iterator[bytes]:
        """Yield pieces until the server ends the stream; raises Unreachable if the stream is
        cut.
        """

    def interrupt(self) -> None:
        """Wake the reading thread, for which the stream then ends; another thread may call this."""

    def close(self) -> None:
        """Release the connection; the reading thread calls this, even if the answer is not
        complete.
        """


class Transport(Protocol):
    """Sends requests; raises Unreachable if no answer comes."""

    host: str

    def send(self, request: TransportRequest, *, seconds: float) -> TransportAnswer:
        """Send a request and return the whole answer; ``seconds`` limits each wait for data."""

    def stream(
        self, request: TransportRequest, *, connect_seconds: float, silence_seconds: float
    ) -> Stream:
        """Send a request and return once the head of the answer has arrived.

        If no data arrives for ``seconds``, the connection counts as broken.
        """

    def close(self) -> None:
        """Close idle connections."""
