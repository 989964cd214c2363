"""Parses answers of the API server: pages of lists, and watches."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from scaler.kubernetes.runtime.cluster.errors import Unreachable, failed_event
from scaler.kubernetes.runtime.cluster.kind import Kind
from scaler.kubernetes.runtime.cluster.nesting import CUT, without_depths
from scaler.kubernetes.runtime.cluster.transport import Stream, TransportRequest

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Levels around ``spec.replicaSpecs.worker.template``, which has no schema: in an ElasticJob, in an
#: event of a watch, and in a list.
_IN_OBJECT, _IN_EVENT, _IN_LIST = 4, 5, 6


class _ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion"}):
    resource_version: str = ""
    # The name on the wire.
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage:
    items: list[dict[str, Any]]
    #: Version from which a watch continues.
    resource_version: str
    #: Token of the next page; empty on the last page.
    continue_: str


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch: ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: dict[str, Any]


_LIST = msgspec.json.Decoder(_List)
_EVENT = msgspec.json.Decoder(WatchEvent)
_OBJECT = msgspec.json.Decoder(dict[str, Any])
_ANYTHING = msgspec.json.Decoder(Any)


def page(body: bytes, kind: Kind, asked: TransportRequest) -> ListPage:
    """Parse a page of a list of ``kind``."""
    found = _decoded(_LIST, body, asked, _IN_LIST)
    items = found.items or []
    for item in items:
        # Lists of built-in kinds leave these fields out.
        item.setdefault("apiVersion", kind.api_version)
        item.setdefault("kind", kind.kind)
    meta = found.metadata
    return ListPage(
        items=items, resource_version=meta.resource_version, continue_=meta.continue_ or ""
    )


def whole(body: bytes, asked: TransportRequest) -> dict[str, Any]:
    """Parse an object."""
    return _decoded(_OBJECT, body, asked, _IN_OBJECT)


def anything(body: bytes, asked: TransportRequest) -> Any:
    """Parse any JSON."""
    return _decoded(_ANYTHING, body, asked, _IN_OBJECT)


class WatchStream:
    """A stream of changes, which one thread reads inside a ``with`` block; another thread may
    ``close`` it.
    """

    def __init__(self, stream: Stream, asked: str) -> None:
        self._stream, self._asked = stream, asked

    def __iter__(self) -> Iterator[WatchEvent]:
        """Yield events until the server ends the watch.

        Raises:
            Unreachable: the stream was cut, possibly in the middle of a line.
            Gone: the server no longer keeps the version.
        """
        rest = b""
        for chunk in self._stream.chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line:
                    yield self._event(line)
        if rest.strip():
            raise Unreachable(f"the answer to {self._asked} ended in the middle of a line")

    def close(self) -> None:
        """End the watch: the thread that iterates stops."""
        self._stream.interrupt()

    def __enter__(self) -> "WatchStream":
        return self

    def __exit__(self, *failed: object) -> None:
        self._stream.close()

    def _event(self, line: bytes) -> WatchEvent:
        try:
            event = _read(_EVENT, line, self._asked, _IN_EVENT)
        except msgspec.DecodeError as why:
            raise Unreachable(f"{self._asked}: a line of the watch is not an event: {why}") from why
        if event.type == "ERROR":
            raise failed_event(event.object, self._asked)
        return event


def _decoded(
    decoder: msgspec.json.Decoder[T], body: bytes, asked: TransportRequest, level: int
) -> T:
    try:
        return _read(decoder, body, str(asked), level)
    except msgspec.DecodeError as why:
        # A proxy answers in the server's place.
        raise Unreachable(
            f"{asked}: the answer does not come from a Kubernetes API server ({why}); check the "
            "server's address and its proxies"
        ) from why


def _read(decoder: msgspec.json.Decoder[T], body: bytes, asked: str, level: int) -> T:
    """Decode an answer; a value that is nested too deeply costs only the field that has it."""
    try:
        return decoder.decode(body)
    except RecursionError:
        log.warning("%s: a field of an object reads %s", asked, CUT)
        return decoder.decode(without_depths(body, level))
