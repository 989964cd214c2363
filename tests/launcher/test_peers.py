"""A coordinator that was stopped itself hears what was said before it calls anybody silent."""

import asyncio
import time
from typing import Any

import pytest

from launcher import messages
from launcher.coordinator.world.peers import Peer, Peers
from launcher.messages import Connection, digest
from tests.launcher.elastic import JOB
from tests.launcher.test_coordinator import SECRET, hello

LEASE_SECONDS = 2.0
#: Within this time after a pause an agent that was paused with its coordinator speaks again.
SOON_SECONDS = 0.2


class Wire(Connection):
    """A connection without a socket: a test says what the other end says."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[messages.Message | None] = asyncio.Queue()

    def send(self, message: "messages.Message | bytes") -> None:
        """Nobody listens."""

    async def receive(self, kind: type[Any], *, seconds: float | None = None) -> Any:
        """The next of what was said."""
        return await self.said.get()

    def abandon(self) -> None:
        """Its end is heard."""
        self.said.put_nowait(None)


class Left:
    """Remembers who left."""

    def __init__(self) -> None:
        self.replicas: list[int] = []

    def came(self, peer: Peer) -> None:
        """Nothing is done with it."""

    def heard(self, peer: Peer, message: messages.Message) -> None:
        """Nothing is done with it."""

    def left(self, peer: Peer, proved: bool) -> None:
        """An agent is gone."""
        self.replicas.append(peer.replica)


async def after_a_pause(seconds: float) -> tuple[list[int], list[int]]:
    """Return who was called silent soon after a pause of everything, and who a lease later, where
    agent 0 speaks on and agent 1 does not."""
    left = Left()
    peers = Peers(
        left,
        job=JOB,
        token_sha256=digest(SECRET),
        lease_seconds=LEASE_SECONDS,
        say=lambda text: None,
    )
    wires = [Wire(), Wire()]
    served = [
        asyncio.create_task(peers.serve(hello(replica), wire, epoch=0, taken=()))
        for replica, wire in enumerate(wires)
    ]
    watch = asyncio.create_task(peers.watch_silence())
    await asyncio.sleep(SOON_SECONDS)

    time.sleep(seconds)
    await asyncio.sleep(SOON_SECONDS)
    soon = list(left.replicas)
    for _ in range(2):
        wires[0].said.put_nowait(messages.Heartbeat(epoch=0, now_ns=0))
        await asyncio.sleep(LEASE_SECONDS / 2)
    later = list(left.replicas)

    watch.cancel()
    for wire in wires:
        wire.abandon()
    await asyncio.gather(watch, *served, return_exceptions=True)
    return soon, later


# Where the lease ends just before the pause does, the coordinator is hardly late for that end.
@pytest.mark.parametrize("seconds", [2 * LEASE_SECONDS, LEASE_SECONDS])
def test_an_agent_that_was_paused_with_its_coordinator_has_time_to_speak(seconds: float) -> None:
    soon, later = asyncio.run(after_a_pause(seconds))

    assert soon == []
    assert later == [1]
