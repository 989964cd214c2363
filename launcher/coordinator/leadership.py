"""Leader election: the agent with the leadership coordinates.

On one machine the leadership is a lock, which the kernel releases when its holder ends, and a file
that names the holder. On several machines the agent at the endpoint leads at first, and later the
lowest surviving rank of the last world.
"""

import asyncio
import contextlib
import math
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from brain.errors import Unavailable
from brain.types.world import Member
from launcher.values.config import WorldDocument, on_loopback
from launcher.values.replica import Coordinating, JobPlace, Lock, started_ticks

#: Number of members that an agent, once it was out of touch, asks for their coordinator.
_ASKED = 8
#: Seconds within which a coordinator elsewhere has reported itself at the endpoint.
_TOLD_SECONDS = 3.0
#: Seconds that an agent's machine may take to answer.
_ANSWER_SECONDS = 0.5
#: Seconds after which a refusal proves nothing any more: an agent may have returned to the address.
_STALE_SECONDS = 3.0


class Leadership(Protocol):
    """An agent's means to find the coordinator, or to become it."""

    def candidates(self, last: WorldDocument | None) -> Sequence[str]:
        """Return the addresses to try, in order.

        The agent's own address is one of them only if it is this agent's turn to coordinate.
        """
        ...

    def others(self, last: WorldDocument | None) -> Sequence[str]:
        """Return further addresses to try if this agent was cut off, because any agent may
        coordinate then.
        """
        ...

    def claim(self, address: str, epoch: int, *, hung: bool) -> bool:
        """Become the coordinator at ``address``; return False if another agent coordinates.

        ``hung``: the holder has been silent for so long that its workers have ended.

        Raises:
            Unavailable: the claim cannot be published; the leadership stays free.
        """
        ...

    def holds(self) -> bool:
        """True while this agent has the leadership that it claimed; checked before each action."""
        ...

    async def gone(
        self, members: Sequence[Member], *, lease_expired: bool, in_touch: bool
    ) -> frozenset[int]:
        """Return the replicas among the silent ``members`` that are proved to be gone."""
        ...

    def near(self, address: str) -> bool:
        """True if there is no network between this agent and ``address``.

        Then an agent there that has been silent for longer than its lease must have ended.
        """
        ...

    def settle(self) -> None:
        """Store that this agent listens at ``home``."""
        ...

    @property
    def home(self) -> str:
        """Address at which new agents look for the coordinator, whichever agent listens there.

        It is empty if new agents look at this agent's own address or file.
        """
        ...

    def leave(self) -> None:
        """Give up the leadership."""
        ...


class LocalLeadership:
    """Leadership on one machine: ``replicas/<job>/coordinator.lock`` and ``coordinator.json``.

    A holder that hangs keeps the lock. A successor then writes the file with the next ``term``. The
    old holder reads the file before each action, sees that it was replaced, and follows the
    successor.
    """

    def __init__(self, place: JobPlace) -> None:
        self._place = place
        self._file = place.directory / "coordinator.json"
        #: Held while the file is read and written.
        self._claiming = Lock(place.directory / "coordinator.claim")
        self._mine: Coordinating | None = None
        self._seen: tuple[int, int] | None = None

    def candidates(self, last: WorldDocument | None) -> Sequence[str]:
        """Return the address of the coordinator that wrote ``coordinator.json``; empty if there is
        none.
        """
        found = self._find()
        return () if found is None else (found.address,)

    def others(self, last: WorldDocument | None) -> Sequence[str]:
        """Return no addresses, because the file names the coordinator."""
        return ()

    def claim(self, address: str, epoch: int, *, hung: bool) -> bool:
        """Take the lock, or replace a holder that hangs; then write the file with the next term.
        Return False if another agent coordinates.

        Raises:
            Unavailable: ``coordinator.json`` cannot be written.
        """
        try:
            return self._claiming.take() and self._claim(address, epoch, hung=hung)
        except OSError as full:
            self._place.lock.release()
            raise Unavailable(f"{self._file} cannot be written: {full}") from full
        finally:
            self._claiming.release()

    def _claim(self, address: str, epoch: int, *, hung: bool) -> bool:
        found = self._find()
        free = self._place.lock.take() and (found is None or not _lives(found))
        if not free and not hung:
            return False
        term = 1 if found is None else found.term + 1
        pid = os.getpid()
        mine = Coordinating(
            pid=pid, address=address, epoch=epoch, term=term, ticks=started_ticks(pid)
        )
        self._place.keep("coordinator", mine, durable=False)
        self._mine, self._seen = mine, _identity(self._file)
        return True

    def holds(self) -> bool:
        """True if the file is still the version that this agent wrote."""
        seen = _identity(self._file)
        if seen != self._seen and self._find() == self._mine:
            self._seen = seen
        if self._seen == seen:
            self._place.lock.take()  # where it was another's, who has let go of it since
            return True
        return False

    async def gone(
        self, members: Sequence[Member], *, lease_expired: bool, in_touch: bool
    ) -> frozenset[int]:
        """Return the members whose own lock is free; once the lease has expired, return all
        members.
        """
        alive = self._place.alive
        return frozenset(m.replica for m in members if lease_expired or not alive(m.replica))

    def near(self, address: str) -> bool:
        """Return True: all agents are on one machine."""
        return True

    def settle(self) -> None:
        """Do nothing, because new agents read ``coordinator.json``."""

    @property
    def home(self) -> str:
        """Return an empty string: new agents read ``coordinator.json``."""
        return ""

    def leave(self) -> None:
        """Release the lock, and record this in the file, because this process may continue for a
        while.
        """
        if self._mine is not None and self.holds():
            left = replace(self._mine, pid=0, ticks=0)
            with contextlib.suppress(OSError):  # a full disk: who waits sees that we hang, or end
                self._place.keep("coordinator", left, durable=False)
        self._mine = self._seen = None
        self._place.lock.release()

    def _find(self) -> Coordinating | None:
        return self._place.find("coordinator", Coordinating)


class SoleLeadership:
    """The leadership of an agent that is alone."""

    def candidates(self, last: WorldDocument | None) -> Sequence[str]:
        """Return no addresses, because there is no other agent."""
        return ()

    def others(self, last: WorldDocument | None) -> Sequence[str]:
        """Return no addresses, because there is no other agent."""
        return ()

    def claim(self, address: str, epoch: int, *, hung: bool) -> bool:
        """Return True, because there is no other agent."""
        return True

    def holds(self) -> bool:
        """Return True, because there is no other agent."""
        return True

    async def gone(
        self, members: Sequence[Member], *, lease_expired: bool, in_touch: bool
    ) -> frozenset[int]:
        return frozenset()

    def near(self, address: str) -> bool:
        """Return True, because there is no other agent."""
        return True

    def settle(self) -> None:
        """Do nothing, because there are no other agents."""

    @property
    def home(self) -> str:
        """Return an empty string: there are no new agents."""
        return ""

    def leave(self) -> None:
        """Do nothing, because there is no lock."""


class EndpointLeadership:
    """``--rdzv-endpoint``: the agent that can listen there coordinates until a world exists.

    ``mine`` is this agent's own address; ``bound`` is True if that address is the endpoint.
    """

    def __init__(
        self,
        endpoint: str,
        mine: str,
        *,
        bound: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint, self._mine, self._bound = endpoint, mine, bound
        self._clock = clock
        #: Address of a member on another machine -> the latest attempt to connect to it, and when
        #: it began.
        self._asked: dict[str, tuple[asyncio.Task[bool], float]] = {}
        self._refused_since: dict[str, float] = {}

    def candidates(self, last: WorldDocument | None) -> Sequence[str]:
        """Return the addresses to try, in order. Before the first world this is the endpoint; later
        it is the last world's coordinator, and then the members with lower ranks than this agent.
        """
        if last is None:
            return () if self._bound else (self._endpoint,)
        members = [member.address for member in last.members]
        before = members[: members.index(self._mine)] if self._mine in members else members
        return [a for a in dict.fromkeys([last.coordinator, *before]) if a != self._mine]

    def others(self, last: WorldDocument | None) -> Sequence[str]:
        """Return the endpoint, and those few members of the last world whose ranks come next after
        this agent's rank.
        """
        if last is None:
            return ()
        members = [member.address for member in last.members]
        after = members[members.index(self._mine) + 1 :] if self._mine in members else []
        return [a for a in dict.fromkeys([*after[:_ASKED], self._endpoint]) if a != self._mine]

    def claim(self, address: str, epoch: int, *, hung: bool) -> bool:
        """Return True if this agent may lead: before the first world only the agent at the
        endpoint, later any agent whose turn it is in the order of rank.
        """
        return self._bound or epoch > 0

    def holds(self) -> bool:
        """Return True, because only messages from members can show that another agent leads."""
        return True

    async def gone(
        self, members: Sequence[Member], *, lease_expired: bool, in_touch: bool
    ) -> frozenset[int]:
        """Return the members that refuse connections, and the members on loopback that hang.

        Connections to other machines are tried between two calls of this method. While this agent
        is cut off, a refused connection to another machine proves nothing: the member may have been
        in a newer world, with agents that are unknown here. Only the agent at the endpoint, to
        which such a world would report, accepts a refusal as proof after a while.
        """
        here = socket.gethostname()
        others = [m for m in members if m.address != self._mine]
        near = [m for m in others if m.node == here]
        refused = await asyncio.gather(*(_refuses(member.address) for member in near))
        dead = {m.replica for m, no in zip(near, refused, strict=True) if no}
        patience = 0.0 if in_touch else _TOLD_SECONDS if self._bound else math.inf
        dead |= {m.replica for m in others if m.node != here and self._refused(m.address, patience)}
        return frozenset(
            dead | {m.replica for m in members if lease_expired and self.near(m.address)}
        )

    def _refused(self, address: str, seconds: float) -> bool:
        """True if ``address`` has refused connections for ``seconds``, as far as known; ask again
        in the background, so that no silence delays a decision.
        """
        asked, began = self._asked.get(address, (None, 0.0))
        if asked is not None and not asked.done():
            return False
        now = self._clock()
        since = self._refused_since.pop(address, now)
        if asked is not None and asked.result() and now - began < _STALE_SECONDS:
            if now - since >= seconds:
                return True
            self._refused_since[address] = since
        self._asked[address] = asyncio.ensure_future(_refuses(address)), now
        return False

    def near(self, address: str) -> bool:
        """Return True if ``address`` is reached without a network."""
        return on_loopback(address)

    def settle(self) -> None:
        """Store that this agent listens at the endpoint."""
        self._bound = True

    @property
    def home(self) -> str:
        """Return the endpoint; an empty string if this agent is the endpoint."""
        return "" if self._bound else self._endpoint

    def leave(self) -> None:
        """Do nothing: the leadership is a socket, which the kernel closes with the process."""


def _lives(holder: Coordinating) -> bool:
    """True if the process that wrote ``coordinator.json`` still runs, and is not this one."""
    try:
        return holder.pid != os.getpid() and started_ticks(holder.pid) == holder.ticks
    except (OSError, ValueError):
        return False


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


async def _refuses(address: str) -> bool:
    """True if the kernel reports that no process listens at ``address``."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False
