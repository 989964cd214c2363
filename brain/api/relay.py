"""Passes requests to the scaler of a pool, and its answers back.

The service has no credentials for a cluster. A scaler takes requests by long poll, and carries the
requests out with its own permissions. A request exists only in the memory of this process, and only
while its sender waits.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Lock

import uuid_utils

from brain.api.bell import Bell
from brain.client import error_of
from brain.errors import NotFound, Unavailable
from brain.types.resources import PoolName
from brain.views import ScalerAnswer, ScalerRequest

#: Most seconds until a scaler takes a request; scalers may need this time to elect a leader.
TAKEN_SECONDS = 15.0
#: Most seconds between two parts of a scaler's answer, for example of a log.
ANSWERED_SECONDS = 30.0
#: Seconds between two checks if the service stops.
_LOOK_SECONDS = 1.0
#: Most parts of one answer that wait until the sender of the request reads them.
_MOST_PARTS = 4


@dataclass(slots=True)
class _Ticket:
    """A request whose sender waits."""

    pool: PoolName
    request: ScalerRequest
    taken: bool = False
    parts: deque[ScalerAnswer] = field(default_factory=deque)


class ScalerRelay:
    """Requests to the scalers of all pools; safe to use from any thread and event loop."""

    def __init__(
        self,
        service: Bell,
        *,
        taken_seconds: float = TAKEN_SECONDS,
        answered_seconds: float = ANSWERED_SECONDS,
    ) -> None:
        """``service`` is the bell that closes when the service stops, which ends every wait."""
        self._service = service
        self._taken_seconds, self._answered_seconds = taken_seconds, answered_seconds
        # A bell of its own, because a relayed request is no reason to read the stores.
        self._bell, self._lock = Bell(), Lock()
        self._tickets: dict[str, _Ticket] = {}

    async def ask(self, pool: PoolName, request: ScalerRequest) -> AsyncGenerator[ScalerAnswer]:
        """Send a request to the pool's scaler, and yield the parts of the answer.

        Raises:
            Unavailable: no scaler took the request, or the scaler that took it does not answer.
            BrainError: the scaler refused the request with this error.
        """
        id = str(uuid_utils.uuid7())
        ticket = self._tickets[id] = _Ticket(pool, replace(request, id=id))
        self._bell.wake()
        try:
            while True:
                part = await self._part(ticket)
                if part.refusal is not None:
                    raise error_of(part.refusal.kind, part.refusal.detail, part.refusal.field)
                yield part
                if not part.more:
                    return
        finally:
            del self._tickets[id]
            self._bell.wake()

    async def take(
        self, pool: PoolName, wait: float, gone: Callable[[], Awaitable[bool]]
    ) -> tuple[ScalerRequest, ...]:
        """Return the requests to a pool's scaler that no scaler has taken yet; wait up to ``wait``
        seconds.

        ``gone`` returns True once the scaler has disconnected; requests are then not returned,
        because they would be lost.
        """
        found: tuple[ScalerRequest, ...] = ()

        async def taken() -> bool:
            nonlocal found
            waiting = any(t.pool == pool and not t.taken for t in list(self._tickets.values()))
            if waiting and not await gone():
                found = self._take(pool)
            return bool(found)

        await self._until(taken, wait)
        return found

    async def answer(self, pool: PoolName, id: str, answer: ScalerAnswer) -> None:
        """Forward a part of an answer, once the request's sender has read most earlier parts.

        Raises:
            NotFound: the sender has stopped waiting for the answer, or does not read its parts.
        """

        async def room() -> bool:
            ticket = self._tickets.get(id)
            return ticket is None or len(ticket.parts) < _MOST_PARTS

        taken = await self._until(room, self._answered_seconds)
        ticket = self._tickets.get(id)
        if not taken or ticket is None or ticket.pool != pool:
            raise NotFound(f"no client is waiting for the answer to request {id}; drop the answer")
        ticket.parts.append(answer)
        self._bell.wake()

    async def _part(self, ticket: _Ticket) -> ScalerAnswer:
        async def heard() -> bool:
            return bool(ticket.parts)

        async def taken() -> bool:
            return ticket.taken

        # A scaler that takes a request at the last moment has its full time to answer.
        if not await self._until(taken, self._taken_seconds) or not await self._until(
            heard, self._answered_seconds
        ):
            raise Unavailable(_silence(ticket))
        part = ticket.parts.popleft()
        self._bell.wake()
        return part

    def _take(self, pool: PoolName) -> tuple[ScalerRequest, ...]:
        with self._lock:
            mine = [t for t in self._tickets.values() if t.pool == pool and not t.taken]
            for ticket in mine:
                ticket.taken = True
        self._bell.wake()
        return tuple(ticket.request for ticket in mine)

    async def _until(self, held: Callable[[], Awaitable[bool]], seconds: float) -> bool:
        """Wait until ``held`` returns True; return False after ``seconds``, or if Brain stops."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        with self._bell.listening() as heard:
            while True:
                heard.clear()
                if await held():
                    return True
                left = deadline - loop.time()
                if left <= 0 or self._service.closed:
                    return False
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, _LOOK_SECONDS)):
                        await heard.wait()


def _silence(ticket: _Ticket) -> str:
    if not ticket.taken:
        return (
            f"no scaler of pool {ticket.pool} takes requests; check that brain-scale "
            "--kubernetes is running, then try again"
        )
    took = f"the scaler of pool {ticket.pool} took the request but has not answered; "
    if ticket.request.pod is not None:
        return took + "read its log, and upgrade the operator if it is from an earlier release"
    return took + "read its log, and check with `brain jobs` whether the job exists"
