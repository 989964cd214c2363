"""The connection of an agent to its coordinator, which also notices when the coordinator is
silent.
"""

import asyncio
import time

from launcher import messages
from launcher.messages import Connection
from launcher.messages.running import lasts


class CoordinatorConnection:
    """The agent's connection to its coordinator; messages are dropped while there is none."""

    def __init__(self, lease_seconds: float) -> None:
        """A coordinator that says nothing for ``lease_seconds`` is taken to hang."""
        self._lease_seconds = lease_seconds
        self.connection: Connection | None = None
        #: Time at which the coordinator was last heard, and its own clock then.
        self.heard_at = self.answered_at = 0.0
        #: Time at which a coordinator with the quorum of its world was last heard; 0 if never.
        self._followed_at = 0.0

    @property
    def unheard_seconds(self) -> float:
        """Seconds since this agent last heard a coordinator that had the quorum of its world; 0 if
        it has never heard such a coordinator.
        """
        return time.monotonic() - self._followed_at if self._followed_at else 0.0

    def begin(self, connection: Connection) -> None:
        """Use a connection to a coordinator that let this agent in."""
        self.connection, self.heard_at, self.answered_at = connection, time.monotonic(), 0.0

    def send(self, message: messages.Message) -> None:
        """Send a message if there is a coordinator."""
        if self.connection is not None:
            self.connection.send(message)

    async def receive(self, connection: Connection) -> messages.Message | None:
        """Wait for a message; return None once the coordinator is gone."""
        message = await connection.receive(messages.Message)
        if message is not None:
            self.heard_at = time.monotonic()
            if lasts(message):
                self._followed_at = self.heard_at
        return message

    async def until_next_beat(self) -> Connection | None:
        """Wait until the next heartbeat is due, or until the coordinator has been silent for too
        long. Return the connection to a silent coordinator, else None.
        """
        due = time.monotonic() + messages.HEARTBEAT_SECONDS
        if self.connection is not None:
            due = min(due, self.heard_at + self._lease_seconds)
        await asyncio.sleep(due - time.monotonic())
        now = time.monotonic()
        if now - due > messages.HEARTBEAT_SECONDS:
            self.heard_at = now  # it is us who were stopped: hear first what was said
        elif self.connection is not None and now - self.heard_at >= self._lease_seconds:
            return self.connection
        return None

    async def close(self) -> None:
        """Close the connection if there is one."""
        if self.connection is not None:
            await self.connection.close()
