"""Reads the output of a job's replicas from the API server, and forwards it immediately."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Empty, Full, Queue

from brain.errors import BrainError, UnknownReplica
from brain.views import LogsRequest
from scaler.kubernetes.kinds.documents.templates import main_container
from scaler.kubernetes.pods import identity
from scaler.kubernetes.runtime.cluster import Cluster, Object
from scaler.kubernetes.runtime.cluster.transport import Stream

log = logging.getLogger(__name__)

#: Seconds between empty messages, which fail once the requester has left.
_HEARTBEAT_SECONDS = 5.0
#: Lines that arrive within this many seconds are sent together.
_PAUSE_SECONDS = 0.2
#: Most bytes of one message, and most pieces that wait to be sent.
_MOST_BYTES, _MOST_PIECES = 1 << 18, 16
#: Most pods that one request reads at a time; it reads further pods as these end.
_MOST_READERS = 64
_MORE = (
    f"brain: this shows the output of {_MOST_READERS} replicas; the output of the others follows "
    "once these end; choose one replica with --replica\n"
)
_STARTED = ("Running", "Succeeded", "Failed")


def send_logs(
    cluster: Cluster,
    request: LogsRequest,
    *,
    pods: Callable[[], Iterable[Object]],
    over: Callable[[], bool],
    send: Callable[[str, bool], None],
) -> None:
    """Send the output of a job's pods in whole lines until no further output can come.

    ``send`` is called with a text, and with True if more text follows; an error that ``send``
    raises ends the reading. ``over`` returns True if the job has finished.

    Raises:
        UnknownReplica: the requested replica no longer has a pod.
    """
    pieces: Queue[bytes] = Queue(_MOST_PIECES)
    readers: dict[str, _Reader] = {}
    told, crowded = float("-inf"), False
    try:
        while True:
            ended = not request.follow or over()
            asked = _asked_for(pods(), request)
            if request.replica is not None and not asked:
                if not readers:
                    raise UnknownReplica(
                        f"replica {request.replica} has no output any more, because its pod was "
                        "deleted from the cluster"
                    )
                # The last lines of the pod are still on their way.
                ended = True
            # Names are never used again; a pod that is being created has no uid yet.
            new = [pod for pod in asked if _started(pod) and pod["metadata"]["name"] not in readers]
            alive = sum(reader.is_alive() for reader in readers.values())
            for pod in new[: _MOST_READERS - alive]:
                readers[pod["metadata"]["name"]] = _Reader(cluster, pod, request, pieces)
            if request.follow and len(new) > _MOST_READERS - alive and not crowded:
                crowded = True
                send(_MORE, True)
            last = ended and not new and not alive
            text, now = _drained(pieces), time.monotonic()
            if text or now - told >= _HEARTBEAT_SECONDS:
                send(text.decode(errors="replace"), True)
                told = now
            if last and pieces.empty():
                send("", False)
                return
            if len(text) < _MOST_BYTES:
                time.sleep(_PAUSE_SECONDS)
    finally:
        for reader in readers.values():
            reader.stop()


def _asked_for(pods: Iterable[Object], request: LogsRequest) -> list[Object]:
    """Return the requested pods, in the order of their replicas' ids."""
    by_id = {found[1]: pod for pod in pods if (found := identity.scaled_of(pod)) is not None}
    return [by_id[id] for id in sorted(by_id) if request.replica in (None, id)]


def _started(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in _STARTED


def _drained(pieces: "Queue[bytes]") -> bytes:
    found: list[bytes] = []
    with suppress(Empty):
        while sum(map(len, found)) < _MOST_BYTES:
            found.append(pieces.get_nowait())
    return b"".join(found)


class _Reader(threading.Thread):
    """Reads the main container of one pod; the constructor starts the thread."""

    def __init__(
        self, cluster: Cluster, pod: Object, request: LogsRequest, pieces: "Queue[bytes]"
    ) -> None:
        super().__init__(name=f"log of {pod['metadata']['name']}", daemon=True)
        self._cluster, self._pod, self._request, self._pieces = cluster, pod, request, pieces
        self._stream: Stream | None = None
        self._stopped = threading.Event()
        self.start()

    def run(self) -> None:
        """Put whole lines into the queue until the output ends or ``stop`` is called."""
        name = self._pod["metadata"]["name"]
        try:
            self._read()
        except BrainError as why:
            if not self._stopped.is_set():
                self._put(f"brain: the output of {name} cannot be read: {why}\n".encode())
        except Exception:
            log.exception("log of %s", name)

    def stop(self) -> None:
        self._stopped.set()
        if self._stream is not None:
            self._stream.interrupt()

    def _read(self) -> None:
        metadata, request = self._pod["metadata"], self._request
        container = main_container(self._pod)["name"]
        stream = self._cluster.log(
            metadata["namespace"],
            metadata["name"],
            container,
            tail=request.tail,
            follow=request.follow,
        )
        self._stream, rest = stream, b""
        try:
            for chunk in stream.chunks():
                lines, end, rest = (rest + chunk).rpartition(b"\n")
                self._put(lines + end)
                if len(rest) >= _MOST_BYTES:
                    # Output without line ends, such as a progress bar's, is cut here.
                    self._put(rest + b"\n")
                    rest = b""
                if self._stopped.is_set():
                    return
        finally:
            stream.close()
        self._put(rest + b"\n" if rest else b"")

    def _put(self, piece: bytes) -> None:
        while piece and not self._stopped.is_set():
            with suppress(Full):
                self._pieces.put(piece, timeout=_PAUSE_SECONDS)
                return
