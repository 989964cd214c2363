"""The connections to the sessions of one agent's workers (``launcher.elastic``), and the sessions'
answers.

All sessions are informed of a change in process; the change is complete once the last session has
confirmed it. docs/reference/protocols.md describes the messages.
"""

import asyncio
import json
import socket
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

MESSAGE_BYTES = 1 << 20
SessionMessage = Mapping[str, Any]
#: What counts once all workers have said it.
_TOGETHER = frozenset({"ready", "agreed", "moved"})


class Sessions:
    """Listens at a path for sessions; call all methods on the event loop's thread."""

    def __init__(
        self, path: Path, processes: int, heard: Callable[[str, SessionMessage], None]
    ) -> None:
        """``heard`` gets new messages: ``ready``, ``agreed`` and ``moved`` once all sessions have
        sent them, any other message as it comes.
        """
        self._path, self._processes, self._heard = path, processes, heard
        self._loop = asyncio.get_running_loop()
        self._lines: dict[int, socket.socket] = {}
        self._unsent: dict[int, list[bytes]] = {}
        #: (what, epoch) -> local ranks that said it.
        self._said: defaultdict[tuple[str, int], dict[int, SessionMessage]] = defaultdict(dict)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(str(path))
        self._listening.listen(processes + 8)
        self._listening.setblocking(False)
        self._loop.add_reader(self._listening.fileno(), self._accept)

    @property
    def complete(self) -> bool:
        """True if all workers have a session."""
        return len(self._lines) == self._processes

    @property
    def here(self) -> tuple[int, ...]:
        """Return the local ranks that have a session."""
        return tuple(sorted(self._lines))

    def tell(self, what: str, **fields: Any) -> None:
        """Send a message to all sessions."""
        for local_rank in self.here:
            self.tell_one(local_rank, what, **fields)

    def tell_one(self, local_rank: int, what: str, **fields: Any) -> None:
        """Send a message to one session, if it is connected."""
        if local_rank not in self._lines:
            return
        self._unsent[local_rank].append(json.dumps({"do": what, **fields}).encode())
        self._flush(local_rank)

    def close(self) -> None:
        for local_rank in self.here:
            self._drop(self._lines[local_rank], local_rank)
        self._loop.remove_reader(self._listening.fileno())
        self._listening.close()

    def _accept(self) -> None:
        try:
            line, _ = self._listening.accept()
        except OSError:  # it went again
            return
        line.setblocking(False)
        self._loop.add_reader(line.fileno(), self._introduced, line)

    def _introduced(self, line: socket.socket) -> None:
        """Take the first message, which names the connection's worker."""
        message = self._receive(line)
        if message is None:
            return
        self._loop.remove_reader(line.fileno())
        local_rank = int(message.get("local_rank", -1)) if message else -1
        if not 0 <= local_rank < self._processes or local_rank in self._lines:
            line.close()
            return
        self._lines[local_rank], self._unsent[local_rank] = line, []
        self._loop.add_reader(line.fileno(), self._hear, line, local_rank)
        self._heard("hello", {"local_rank": local_rank})

    def _hear(self, line: socket.socket, local_rank: int) -> None:
        while (message := self._receive(line)) is not None:
            if not message:
                self._drop(line, local_rank)
                return
            self._take(local_rank, str(message.pop("say")), message)

    def _take(self, local_rank: int, what: str, message: dict[str, Any]) -> None:
        if what not in _TOGETHER:
            self._heard(what, message)
            return
        said = self._said[what, int(message["epoch"])]
        said[local_rank] = message
        if len(said) == self._processes:
            every = [bool(each.get("ok", True)) for each in said.values()]
            said.clear()  # an agreement may be asked for again
            self._heard(what, {**message, "ok": all(every)})

    def _receive(self, line: socket.socket) -> dict[str, Any] | None:
        """Receive a message; empty at the end, None if none has come yet."""
        try:
            content = line.recv(MESSAGE_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            content = b""
        found: dict[str, Any] = json.loads(content) if content else {}
        return found

    def _flush(self, local_rank: int) -> None:
        line, unsent = self._lines.get(local_rank), self._unsent.get(local_rank, [])
        if line is None:
            return
        self._loop.remove_writer(line.fileno())
        while unsent:
            try:
                line.send(unsent[0])
            except BlockingIOError:
                self._loop.add_writer(line.fileno(), self._flush, local_rank)
                return
            except OSError:  # its end is seen elsewhere
                unsent.clear()
                return
            unsent.pop(0)

    def _drop(self, line: socket.socket, local_rank: int) -> None:
        self._loop.remove_reader(line.fileno())
        self._loop.remove_writer(line.fileno())
        line.close()
        self._lines.pop(local_rank, None)
        self._unsent.pop(local_rank, None)
