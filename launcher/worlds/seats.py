"""Who coordinates: the agent that holds the seat.

On one machine the seat is a lock that the kernel frees with its holder. Elsewhere it is the
endpoint everybody was given, then the lowest surviving rank of the last world.
"""

import asyncio
import os
import socket
from collections.abc import Sequence
from typing import Protocol

from brain.types.world import Member
from launcher.config import WorldDocument
from launcher.replica import Coordinating, JobPlace


class Seat(Protocol):
    """How an agent finds the coordinator, or becomes it."""

    def candidates(self, last: WorldDocument | None) -> Sequence[str]:
        """Addresses to ask, best first; one's own where it is one's turn."""
        ...

    def claim(self, address: str, epoch: int) -> bool:
        """Become the coordinator, answering at ``address``; False where somebody else is."""
        ...

    async def gone(self, members: Sequence[Member]) -> frozenset[int]:
        """Replicas that are proved to be gone."""
        ...

    def leave(self) -> None:
        """Give the seat up."""
        ...


class LocalSeat:
    """``replicas/<job>/coordinator.lock``."""

    def __init__(self, place: JobPlace) -> None:
        self._place = place

    def candidates(self, last: WorldDocument | None) -> Sequence[str]:
        """Whoever wrote ``coordinator.json``."""
        found = self._place.find("coordinator", Coordinating)
        return () if found is None else (found.address,)

    def claim(self, address: str, epoch: int) -> bool:
        """Take the lock."""
        if not self._place.lock.take():
            return False
        self._place.keep("coordinator", Coordinating(pid=os.getpid(), address=address, epoch=epoch))
        return True

    async def gone(self, members: Sequence[Member]) -> frozenset[int]:
        """Those whose own lock is free."""
        return frozenset(m.replica for m in members if not self._place.alive(m.replica))

    def leave(self) -> None:
        """Let go of the lock."""
        self._place.lock.release()


class SoleSeat:
    """One agent alone."""

    def candidates(self, last: WorldDocument | None) -> Sequence[str]:
        """Nobody else."""
        return ()

    def claim(self, address: str, epoch: int) -> bool:
        """Always."""
        return True

    async def gone(self, members: Sequence[Member]) -> frozenset[int]:
        """Nobody."""
        return frozenset()

    def leave(self) -> None:
        """Nothing is held."""


class EndpointSeat:
    """``--rdzv-endpoint``: who can listen there coordinates, until a world exists.

    ``mine`` is this agent's own address; ``bound`` whether it is the endpoint itself.
    """

    def __init__(self, endpoint: str, mine: str, *, bound: bool) -> None:
        self._endpoint, self._mine, self._bound = endpoint, mine, bound

    def candidates(self, last: WorldDocument | None) -> Sequence[str]:
        """The endpoint first, then the members of the last world by rank, up to oneself."""
        if last is None:
            return () if self._bound else (self._endpoint,)
        members = [member.address for member in last.members]
        before = members[: members.index(self._mine)] if self._mine in members else members
        return [a for a in dict.fromkeys([last.coordinator, *before]) if a != self._mine]

    def claim(self, address: str, epoch: int) -> bool:
        """The first seat is the endpoint; later ones follow rank, and may be claimed."""
        return self._bound or epoch > 0

    async def gone(self, members: Sequence[Member]) -> frozenset[int]:
        """Members on this very machine that nobody answers for."""
        here = socket.gethostname()
        near = [m for m in members if m.node == here and m.address != self._mine]
        refused = await asyncio.gather(*(_refuses(member.address) for member in near))
        return frozenset(m.replica for m, no in zip(near, refused, strict=True) if no)

    def leave(self) -> None:
        """Nothing is held but the socket, which goes with the process."""


async def _refuses(address: str) -> bool:
    """Whether the kernel says that nobody listens there."""
    host, _, port = address.rpartition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    writer.close()
    return False
