"""The shard client of a worker: it requests shards from the agent, or, without ``brain-run``, from
a local ledger.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

from brain.errors import BadInput, Conflict, Unavailable
from launcher.data.questions import ShardQuestion
from launcher.data.serving import Serving

_ERRORS = {"BadInput": BadInput, "Conflict": Conflict, "Unavailable": Unavailable}


class Client(Protocol):
    """The interface of a worker to the ledgers of its datasets."""

    #: Epoch of the world that this worker was started in.
    world: int

    def ask(self, **body: Any) -> Mapping[str, Any]:
        """Send a request, wait for the answer and return it.

        Raises:
            BadInput: the request is not valid.
            Conflict: another worker has the shard by now.
            Unavailable: no agent answers, or another worker that had to send the same request did
                not send it.
        """
        ...

    def tell(self, **body: Any) -> None:
        """Send a message, and do not wait for an answer."""
        ...


class Alone:
    """A client with ledgers that only this process uses."""

    world = 0

    def __init__(self) -> None:
        self._serving = Serving()

    def ask(self, **body: Any) -> Mapping[str, Any]:
        question = ShardQuestion(replica=0, holder="0", number=0, body=body)
        (answer,) = self._serving.asked(question, time.monotonic())
        return _checked(answer.body)

    def tell(self, **body: Any) -> None:
        """Do nothing, because no other process shares these ledgers."""


class ShardAsking:
    """A client that uses the agent's socket."""

    def __init__(self, path: str, world: int) -> None:
        self.world, self._pid, self._number = world, os.getpid(), 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._lines = self._socket.makefile("rb")

    def ask(self, **body: Any) -> Mapping[str, Any]:
        self._number += 1
        self._send({"n": self._number, **body})
        while line := self._lines.readline():
            answer = json.loads(line)
            if answer["n"] == self._number:
                return _checked(answer)
        raise Unavailable(
            "the agent has ended, so no process gives out shards; start the job again"
        )

    def tell(self, **body: Any) -> None:
        self._send(body)

    def _send(self, body: Mapping[str, Any]) -> None:
        if os.getpid() != self._pid:
            raise BadInput(
                "only the process of a rank can take shards, not a worker of a DataLoader; use a "
                "Sampler, or num_workers=0"
            )
        try:
            self._socket.sendall(json.dumps(body).encode() + b"\n")
        except OSError as gone:
            raise Unavailable(
                "the agent has ended, so no process gives out shards; start the job again"
            ) from gone


@cache
def client() -> Client:
    """Return the client of this process: one with the agent's socket, or a local one without an
    agent.

    Raises:
        BadInput: there are several workers, and no agent to divide the shards.
    """
    if gate := sys.modules.get("_brain_gate"):
        gate.at_end()  # what is done is known once this world exists
    told = sys.modules.get("_brain_memory")
    if told is not None and told.config.get("agent"):
        shard_socket = os.path.join(os.path.dirname(told.config["agent"]), "data")
        try:
            return ShardAsking(shard_socket, int(told.config["epoch"]))
        except OSError as cannot:
            raise Unavailable(
                f"the agent does not give out shards at {shard_socket}: {cannot}"
            ) from cannot
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1:
        raise BadInput(
            f"shards: no agent divides them among {world} workers here; start the workers with "
            "brain-run, or use a Sampler",
            field="shards",
        )
    return Alone()


def _checked(body: Mapping[str, Any]) -> Mapping[str, Any]:
    if "error" in body:
        raise _ERRORS[body["error"]](body["text"])
    return body
