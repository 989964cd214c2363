"""Serves shards from a coordinator: ``launcher.data.serving`` with a clock, messages and a file.

The ledgers are on disk before a request is answered, so a successor on this machine finds them.
Agents receive the ledgers after their heartbeats, so a successor on another machine gets them, too.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from brain.errors import BadInput
from launcher import messages
from launcher.coordinator.world.peers import Peer, Peers
from launcher.data.questions import ShardAnswer, ShardQuestion
from launcher.data.serving import Serving
from launcher.values.replica import JobPlace

#: Seconds between two times that all agents are told the ledgers, and bytes of them in a second.
_ROUND_SECONDS, _ROUND_BYTES_PER_SECOND = 0.5, 5e6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Books:
    """The content of ``shards.json``: the state of all datasets."""

    v: int = 1
    version: int
    #: JSON.
    books: str


class ShardServer:
    """The shards that one coordinator serves.

    Call ``begin`` before the first message, and ``settle`` once all agents have reported.
    """

    def __init__(
        self,
        place: JobPlace,
        peers: Peers,
        say: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._place, self._peers, self._say, self._clock = place, peers, say, clock
        self._serving = Serving(settled=False)
        #: The version that is on disk, the one that agents are being told, and who has which.
        self._kept, self._round, self._told = 0, 0, dict[int, int]()
        self._books, self._next_at = b"", -math.inf
        #: Agents that have said all they know of what the coordinator before gave out.
        self._heard: set[int] = set()

    def begin(self) -> None:
        """Load the ledgers from disk."""
        try:
            found = self._place.find("shards", _Books)
        except BadInput as torn:
            self._say(
                f"the saved ledgers of shards cannot be read, so every dataset starts again: {torn}"
            )
            found = None
        if found is not None:
            self._adopt(found.version, found.books, "shards.json")

    @property
    def settled(self) -> bool:
        """True if requests are answered."""
        return self._serving.settled

    @property
    def complete(self) -> bool:
        """True if all connected agents have reported what they know."""
        return all(peer.replica in self._heard for peer in self._peers)

    def settle(self) -> None:
        """Start to answer requests, because every agent that may know newer facts has reported or
        is gone.
        """
        self._send(self._serving.settle(self._clock()))

    def heard(self, peer: Peer, message: messages.Asked | messages.Shared) -> None:
        """Handle an agent's message about shards."""
        now = self._clock()
        if isinstance(message, messages.Shared):
            self._heard.add(peer.replica)
            self._adopt(message.version, message.books, f"what replica {peer.replica} heard")
            return
        said: dict[str, Any] = json.loads(message.body)
        question = ShardQuestion(
            replica=peer.replica, holder=message.holder, number=message.number, body=said
        )
        self._send(self._serving.asked(question, now))

    def _adopt(self, version: int, books: str | bytes, source: str) -> None:
        try:
            self._serving.adopt(version, json.loads(books), self._clock())
        except (BadInput, ValueError) as damaged:
            self._say(
                f"the ledgers of shards in {source} are damaged, so they are not used: {damaged}"
            )

    def left(self, replica: int) -> None:
        """Note that an agent is gone."""
        self._told.pop(replica, None)
        self._heard.discard(replica)
        self._send(self._serving.left(replica, self._clock()))

    def beat(self, peer: Peer) -> None:
        """At an agent's heartbeat, end expired leases, and send the agent what has changed."""
        if not self.settled or not self._serving.version:
            return
        now = self._clock()
        if now >= self._next_at:
            self._send(self._serving.turn(now))
            self._begin_round(now)
        if self._told.get(peer.replica, 0) < self._round:
            self._told[peer.replica] = self._round
            peer.connection.send(self._books)

    def _begin_round(self, now: float) -> None:
        """Have the present ledgers sent to all agents, at a pace that the network can bear."""
        self._next_at = now + _ROUND_SECONDS
        if self._serving.version > self._round:
            self._round = self._serving.version
            books = json.dumps(self._serving.dump()).encode()
            self._books = messages.encoded(messages.Shared(version=self._round, books=books))
            self._next_at += len(self._books) * len(self._peers) / _ROUND_BYTES_PER_SECOND

    def _send(self, answers: list[ShardAnswer]) -> None:
        self._keep()
        for answer in answers:
            question = answer.question
            peer = self._peers.get(question.replica)
            if peer is not None and question.number >= 0:
                peer.connection.send(
                    messages.Answered(
                        holder=question.holder,
                        number=question.number,
                        version=self._serving.version,
                        body=json.dumps(answer.body).encode(),
                    )
                )

    def _keep(self) -> None:
        version = self._serving.version
        if not self.settled or version == self._kept:
            return
        self._kept = version
        books = _Books(version=version, books=json.dumps(self._serving.dump()))
        try:
            self._place.keep("shards", books, durable=False)
        except OSError as full:
            self._say(
                f"shards.json cannot be written ({full}); if this agent ends, the next "
                "coordinator lacks the progress of shards; free space on the disk"
            )
