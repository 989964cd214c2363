"""Where a coordinator serves shards: ``launcher.data.serving`` with a clock, frames and a file.

Its books are written down before anything is answered, so a successor on this machine finds them;
agents hear of them with their heartbeats, so one on another machine finds them too.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from brain.errors import BadInput
from launcher import frames
from launcher.data.serving import Answer, Question, Serving
from launcher.replica import JobPlace
from launcher.worlds.peers import Peer, Peers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Books:
    """``shards.json``."""

    v: int = 1
    version: int
    #: JSON.
    books: str


class Counter:
    """One coordinator's. ``begin`` it before anything is heard."""

    def __init__(
        self,
        place: JobPlace,
        peers: Peers,
        say: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._place, self._peers, self._say, self._clock = place, peers, say, clock
        self._serving = Serving(settled=False)
        #: The version that is on disk, and which one each agent has.
        self._kept, self._told = 0, dict[int, int]()

    def begin(self, *, fresh: bool) -> None:
        """Go on from what is written down; ``fresh``: there is nobody who could know more."""
        try:
            found = self._place.find("shards", _Books)
        except BadInput as torn:
            self._say(f"shards begin without what was written down: {torn}")
            found = None
        if found is not None:
            self._serving.adopt(found.version, json.loads(found.books), self._clock())
        if fresh:
            self.settle()

    @property
    def settled(self) -> bool:
        """Whether questions are answered."""
        return self._serving.settled

    def settle(self) -> None:
        """All who may know something of the coordinator before were heard, or are gone."""
        self._send(self._serving.settle(self._clock()))

    def heard(self, peer: Peer, frame: frames.Asked | frames.Shared) -> None:
        """Take what an agent says about shards."""
        now = self._clock()
        if isinstance(frame, frames.Shared):
            self._serving.adopt(frame.version, json.loads(frame.books), now)
            return
        said: dict[str, Any] = json.loads(frame.body)
        question = Question(
            replica=peer.replica, holder=frame.holder, number=frame.number, body=said
        )
        self._send(self._serving.asked(question, now))

    def left(self, replica: int) -> None:
        """An agent is gone."""
        self._told.pop(replica, None)
        self._send(self._serving.left(replica, self._clock()))

    def beat(self, peer: Peer) -> None:
        """An agent's heart beats: see to what time brings, and tell it what is new."""
        self._send(self._serving.turn(self._clock()))
        version = self._serving.version
        if self.settled and version > self._told.get(peer.replica, 0):
            self._told[peer.replica] = version
            books = json.dumps(self._serving.dump()).encode()
            peer.connection.send(frames.Shared(version=version, books=books))

    def _send(self, answers: list[Answer]) -> None:
        self._keep()
        for answer in answers:
            question = answer.question
            peer = self._peers.get(question.replica)
            if peer is not None and question.number >= 0:
                peer.connection.send(
                    frames.Answered(
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
            self._say(f"shards.json cannot be written, a successor would miss it: {full}")
