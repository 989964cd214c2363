"""The search for the coordinator of an agent's job, which tries the candidates in order."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from brain.errors import BadInput, Unavailable
from launcher import messages
from launcher.coordinator.leadership import Leadership
from launcher.messages import Connection
from launcher.values.config import WorldDocument

#: Seconds to connect to an agent, and to one that was silent already.
_ANSWER_SECONDS, _SUSPECT_SECONDS = 2.0, 0.25
#: Seconds from then on until it answers. An agent that takes over waits for a suspect once.
_WELCOME_SECONDS, _SUSPECT_WELCOME_SECONDS = 4.0, 0.25


@dataclass(frozen=True, slots=True)
class Found:
    """A coordinator that accepted this agent."""

    connection: Connection
    welcome: messages.Welcome


#: Who was found; or that the job is not for us; or whether one answered whose turn is before ours.
Answer = Found | messages.Refused | bool


class Search:
    """A search for the coordinator, which remembers which agents were silent, and which agent was
    named as coordinator.
    """

    def __init__(
        self,
        leadership: Leadership,
        address: str,
        *,
        lease_seconds: float,
        hello: Callable[[], messages.Hello],
        last: Callable[[], WorldDocument | None],
        say: Callable[[str], None],
    ) -> None:
        self.leadership, self._address, self._lease_seconds = leadership, address, lease_seconds
        self._hello, self._last, self._say = hello, last, say
        #: Address of the coordinator that this agent follows; empty if it follows none.
        self.following = ""
        #: Address of the agent that named itself coordinator; empty if none did.
        self.leader = ""
        #: True if another agent has this agent's replica number by now.
        self.taken = False
        #: Addresses that did not answer -> since when.
        self._silent: dict[str, float] = {}
        #: True if other agents may follow a coordinator whose turn it was not.
        self._strayed = False
        #: Why the leadership could not be taken.
        self._unseated = ""

    async def look(self, *, own: bool) -> Answer:
        """Try the agents that may coordinate. With ``own``, this agent coordinates and connects to
        itself.

        Return the coordinator that accepted this agent, or the refusal. If there is neither, return
        True if any agent of the job answered, else False.
        """
        if own:
            return await self._introduce(self._address)
        answer = await self._ask([a for a in self._candidates() if a not in self._silent])
        if answer is not False or not self._strayed:
            return answer
        others = self.leadership.others(self._last())
        found = await self._ask(others)
        # An agent there named another coordinator; or named an agent that it does not know to be
        # silent.
        if isinstance(found, bool) and self.leader not in ("", *others):
            found = await self._ask([self.leader])
        return False if isinstance(found, bool) else found

    async def look_again(self) -> Answer:
        """Try silent agents again if this agent cannot take over from them; return the same values
        as ``look``.
        """
        return await self._ask([a for a in self._candidates() if a in self._silent])

    def claim(self) -> bool:
        """Become the coordinator if it is this agent's turn; return True if this agent coordinates
        now.
        """
        last = self._last()
        since = min(self._silent.values(), default=math.inf)
        hung = time.monotonic() - since >= 2 * self._lease_seconds
        epoch = 0 if last is None else last.epoch
        try:
            return self.leadership.claim(self._address, epoch, hung=hung)
        except Unavailable as cannot:
            if self._unseated != str(cannot):  # it is tried again at every look
                self._unseated = str(cannot)
                self._say(f"no agent can coordinate this job now: {cannot}")
            return False

    def arrived(self) -> None:
        """Forget silent and named agents, because this agent now follows a coordinator."""
        self._silent.clear()
        self.leader, self.taken, self._strayed = "", False, False

    def turned_away(self, since: float) -> None:
        """Store the time since which this agent's coordinator has been silent."""
        self._silent[self.following] = since
        if (last := self._last()) is not None:
            self._silent[last.coordinator] = since
        self._strayed = True

    def stood_down(self) -> None:
        """Store that this agent stopped coordinating; from now on any agent may coordinate, even
        out of turn.
        """
        self.leadership.leave()
        self._silent.clear()
        self._strayed = True

    def _candidates(self) -> list[str]:
        """Return addresses of agents that may coordinate, beginning with an agent that others
        named.
        """
        named = [self.leader] if self.leader else []
        return list(dict.fromkeys([*named, *self.leadership.candidates(self._last())]))

    async def tell_home(self, lead: messages.Lead) -> None:
        """Tell the agent that listens at the job's endpoint that this agent's address is the
        coordinator's address.
        """
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                connection = await Connection.to(self.leadership.home)
        except (Unavailable, TimeoutError):
            return
        connection.send(lead)
        await connection.close()

    async def _ask(self, addresses: Sequence[str]) -> Answer:
        answered = False
        for address in addresses:
            found = await self._introduce(address)
            if not isinstance(found, bool):
                return found
            answered |= found
        return answered

    async def _introduce(self, address: str) -> Answer:
        """Say hello; return the coordinator, or True if any agent of the job answered."""
        asked_at = time.monotonic()
        suspect = address in self._silent
        patience = _SUSPECT_SECONDS if suspect else _ANSWER_SECONDS
        try:
            # Not `wait_for`: in Python 3.11 it swallows a cancellation that comes with its answer.
            async with asyncio.timeout(patience):
                connection = await Connection.to(address)
        except Unavailable:
            return False
        except TimeoutError:
            self._silent.setdefault(address, asked_at)
            return False
        connection.send(self._hello())
        try:
            async with asyncio.timeout(_SUSPECT_WELCOME_SECONDS if suspect else _WELCOME_SECONDS):
                said = await connection.receive(messages.Message)
        except (BadInput, TimeoutError):
            said = None
            self._silent.setdefault(address, asked_at)
        if isinstance(said, messages.Welcome):
            self.following = address
            return Found(connection, said)
        await connection.close()
        if isinstance(said, messages.Refused):
            if said.final:
                return said
            self._say(said.reason)
            if not self.taken:  # let in under another number, before we would take nobody's turn
                self.taken = True
                return await self._introduce(address)
        elif isinstance(said, messages.Elsewhere) and said.coordinator not in ("", self._address):
            self.leader = said.coordinator
        return said is not None
