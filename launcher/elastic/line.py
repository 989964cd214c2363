"""The worker's end of the connection to its agent: JSON messages over a Unix SOCK_SEQPACKET.

docs/reference/protocols.md describes the messages.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

MESSAGE_BYTES = 1 << 20


class Line:
    """A connection to the agent; a separate thread receives its messages."""

    def __init__(self, path: str, hear: Callable[[dict[str, Any]], None]) -> None:
        """Raises OSError if no agent listens at ``path``."""
        self._hear, self._pid = hear, os.getpid()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(path)
        self._thread = threading.Thread(target=self._listen, name="brain-elastic", daemon=True)

    def open(self) -> None:
        """Start the thread that receives messages."""
        self._thread.start()

    def say(self, what: str, **fields: Any) -> None:
        """Send a message to the agent if the agent is alive and this process is not a fork of the
        worker.
        """
        if os.getpid() != self._pid:
            return
        try:
            self._socket.send(json.dumps({"say": what, **fields}).encode())
        except OSError:
            return

    def _listen(self) -> None:
        while True:
            try:
                content = self._socket.recv(MESSAGE_BYTES)
            except OSError:
                return
            if not content:
                return
            self._hear(json.loads(content))
