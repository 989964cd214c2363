"""The transport of requests to the API server, and how one is made of a kubeconfig."""

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
        """Path and query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportAnswer:
    """One answer of the API server, whole."""

    code: int
    body: bytes
    headers: Mapping[str, str]


class Stream(Protocol):
    """An answer that comes in pieces."""

    code: int
    headers: Mapping[str, str]

    def read(self) -> bytes:
        """The rest of it; for answers that are no stream after all."""

    def chunks(self) -> Iterator[bytes]:
        """Pieces as they come. Ends when the server ends; raises Unreachable when it is cut."""

    def interrupt(self) -> None:
        """Have the thread that reads see the end; may be called by another one."""

    def close(self) -> None:
        """Let go of the connection; called by the thread that reads, whether it did or not."""


class Transport(Protocol):
    """Sends requests. Raises Unreachable where no answer came."""

    host: str

    def send(self, request: TransportRequest, *, seconds: float) -> TransportAnswer:
        """Send and wait for the whole answer, ``seconds`` at most between two bytes."""

    def stream(
        self, request: TransportRequest, *, connect_seconds: float, silence_seconds: float
    ) -> Stream:
        """Send and wait for the head of the answer. A silence that long counts as a cut."""

    def close(self) -> None:
        """Close idle connections."""
