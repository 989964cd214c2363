"""The coordinator's connections: agents that join, are connected, or are silent."""

import asyncio
import time
from collections.abc import Callable, Collection, Iterator
from typing import Protocol

import msgspec

from brain.errors import BadInput
from launcher import messages
from launcher.messages import Connection
from launcher.values.config import VERSION
from launcher.values.observation import AgentObserved


class Peer:
    """A connected agent."""

    def __init__(self, hello: messages.Hello, connection: Connection, now: float) -> None:
        self.hello, self.connection = hello, connection
        self.heard_at = now
        #: When it last heard the coordinator before this one.
        self.followed_until = now - hello.unheard_seconds
        #: Time, on this clock, of the newest message that it is known to have heard from here.
        self.confirmed_at = now
        #: It follows another coordinator; the end of its connection proves nothing.
        self.turned = False
        self.since = now
        self.ready = hello.ready
        self.leaving_since: float | None = None
        #: Why its node is left; empty if it stays, or leaves through no fault of the node.
        self.unfit = ""
        #: A port that was free on its machine lately.
        self.port = hello.port
        #: Parts of steps that are in its memory.
        self.held = hello.held

    @property
    def replica(self) -> int:
        return self.hello.replica

    def seen(self) -> AgentObserved:
        """Return this peer in the form that ``membership.decide`` needs."""
        hello = self.hello
        return AgentObserved(
            replica=hello.replica,
            node=hello.node,
            address=hello.address,
            processes=hello.processes,
            group=hello.group,
            generation=hello.generation,
            ready=self.ready,
            since=self.since,
            rank=hello.rank,
            leaving_since=self.leaving_since,
            topology=hello.topology,
            port=self.port,
        )


class Listener(Protocol):
    """A receiver of events on the connections."""

    def came(self, peer: Peer) -> None:
        """Handle the arrival of an accepted agent."""
        ...

    def heard(self, peer: Peer, message: messages.Message) -> None:
        """Handle an agent's message."""
        ...

    def left(self, peer: Peer, proved: bool) -> None:
        """Handle the end of a connection: the agent ended (``proved``), or its lease expired."""
        ...


class Peers:
    """All connected agents of a job, one connection each."""

    def __init__(
        self,
        listener: Listener,
        *,
        job: str,
        token_sha256: str,
        lease_seconds: float,
        program: str = "",
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listener, self._job, self._token_sha256 = listener, job, token_sha256
        self._lease_seconds, self._program = lease_seconds, program
        self._say, self._clock = say, clock
        self._here: dict[int, Peer] = {}
        self._numbers = 0
        #: Number of connections that ended without a release of the agent.
        self.lost = 0

    def __iter__(self) -> Iterator[Peer]:
        return iter([self._here[replica] for replica in sorted(self._here)])

    def __len__(self) -> int:
        return len(self._here)

    def get(self, replica: int) -> Peer | None:
        """Return the agent of a replica; None if it is not connected."""
        return self._here.get(replica)

    @property
    def replicas(self) -> Collection[int]:
        """Replicas whose agents are connected."""
        return self._here.keys()

    async def serve(
        self, hello: messages.Hello, connection: Connection, *, epoch: int, taken: Collection[int]
    ) -> None:
        """Accept an agent, and read its messages until its connection ends.

        A new agent gets an id outside ``taken``.
        """
        if refused := self._refusal(hello):
            connection.send(refused)
            return
        if hello.replica < 0:
            hello = msgspec.structs.replace(hello, replica=self._number(taken))
        peer = self._here[hello.replica] = Peer(hello, connection, self._clock())
        connection.send(messages.Welcome(replica=hello.replica, epoch=epoch))
        self._listener.came(peer)
        try:
            while (message := await connection.receive(messages.Message)) is not None:
                peer.heard_at = self._clock()
                self._listener.heard(peer, message)
        except BadInput as bad:
            self._say(f"replica {hello.replica} is disconnected: {bad}")
        finally:
            self._end(peer, proved=not peer.turned)

    def release(self, replica: int, bye: messages.Bye) -> None:
        """Release an agent from the job."""
        if peer := self._here.pop(replica, None):
            peer.connection.send(bye)

    async def watch_silence(self) -> None:
        """Drop agents that are silent for longer than their lease, until cancelled.

        The time for which this process was stopped does not count, because it received no messages
        then.
        """
        while True:
            now = self._clock()
            heard = min((peer.heard_at for peer in self._here.values()), default=now)
            due = min(max(heard + self._lease_seconds, now), now + messages.HEARTBEAT_SECONDS)
            await asyncio.sleep(due - now)
            now = self._clock()
            if (late := now - due) > messages.HEARTBEAT_SECONDS:
                for peer in self:
                    peer.heard_at = min(peer.heard_at + late, now)
                continue
            for peer in self:
                if now - peer.heard_at >= self._lease_seconds:
                    self._say(f"replica {peer.replica} is silent, and its lease has run out")
                    self._end(peer, proved=False)
                    peer.connection.abandon()

    async def close(self) -> None:
        for peer in self:
            await peer.connection.close()

    def _end(self, peer: Peer, *, proved: bool) -> None:
        if self._here.get(peer.replica) is peer:
            del self._here[peer.replica]
            self.lost += 1
            self._listener.left(peer, proved)

    def _refusal(self, hello: messages.Hello) -> messages.Refused | None:
        if hello.v != VERSION:
            return messages.Refused(
                reason=(
                    f"v: the agent speaks version {hello.v} and the coordinator version "
                    f"{VERSION}; install the same version of Brain on both machines"
                )
            )
        if hello.job != self._job:
            return messages.Refused(
                reason=(
                    f"job: the endpoint serves job {self._job}, not {hello.job}; give another "
                    f"--rdzv-endpoint, or join with --rdzv-id {self._job}"
                )
            )
        if not messages.same(hello.token_sha256, self._token_sha256):
            return messages.Refused(
                reason=("token: this is not the token of the job; give the agent the job's token")
            )
        if hello.program and self._program and hello.program != self._program:
            return messages.Refused(
                reason=(
                    f"job: the agents of {self._job} at this endpoint run {self._program}, not "
                    f"{hello.program}; give one of the two jobs another endpoint or another "
                    "--rdzv-id"
                )
            )
        if known := self._here.get(hello.replica):
            other = (
                ""
                if known.hello.address == hello.address
                else (
                    f" from {known.hello.address}; if two agents use one id, the first one keeps it"
                )
            )
            reason = f"replica: {hello.replica} is connected already{other}"
            return messages.Refused(reason=reason, final=False)
        return None

    def _number(self, taken: Collection[int]) -> int:
        """Return an id that no replica has."""
        self._numbers = max(self._numbers, max(taken, default=-1) + 1)
        while self._numbers in self._here:
            self._numbers += 1
        return self._numbers
