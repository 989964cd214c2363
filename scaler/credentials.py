"""Fetches from Brain the token and the environment that the agents of a job need to start.

The token is stored beside the job's replicas, in a file (mode 0600) or a Secret. Values of the
environment are never written to storage. They exist only in this process and in the agents; if
Brain is unreachable, the scaler reads them from a living agent.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

from brain import calls
from brain.client import Call
from brain.errors import BrainError, Unavailable
from brain.types.job import JobId
from brain.views import DesiredJob
from scaler.ports import JobBackend

log = logging.getLogger(__name__)

T = TypeVar("T")


class AsyncAsked(Protocol):
    """``AsyncBrainClient``, or its stand-in if the scaler runs without Brain."""

    async def send(self, call: Call[T], /) -> T:
        """Send one request; raise the same errors as ``AsyncBrainClient.send``."""
        ...


class Credentials:
    """The token and the environment of each job that should run."""

    def __init__(
        self,
        client: AsyncAsked,
        backend: JobBackend,
        call: Callable[..., Awaitable[Any]],
    ) -> None:
        """``call`` runs functions of the backend, in a separate thread if they may block."""
        self._client, self._backend, self._call = client, backend, call
        self._environments: dict[JobId, Mapping[str, str]] = {}
        self._refused: dict[JobId, str] = {}

    def lacking(self, wish: DesiredJob) -> str | None:
        """Return why no agent of this job can be started yet; None if one can."""
        known = wish.job in self._environments or not _names(wish)
        if known and self._backend.has_token(wish.job):
            return None
        return self._refused.get(
            wish.job, ("the replica waits until Brain sends the job's token and environment")
        )

    def environment(self, job: JobId) -> Mapping[str, str]:
        """Return the environment of a job, once nothing is lacking."""
        return self._environments.get(job, {})

    def forget(self, job: JobId) -> None:
        """Drop the credentials of a finished job."""
        self._environments.pop(job, None)
        self._refused.pop(job, None)

    async def fetch(self, wish: DesiredJob) -> None:
        """Get the missing credentials, or store the reason why they are not available.

        Raises:
            Unavailable: Brain is unreachable, and no living agent provides the environment.
        """
        try:
            await self._fetch_environment(wish)
            if not await self._call(self._backend.has_token, wish.job):
                token = await self._client.send(calls.mint_agent_token(wish.job))
                await self._call(self._backend.put_token, wish.job, token.secret)
            self._refused.pop(wish.job, None)
        except (BrainError, OSError) as why:
            self._refused[wish.job] = f"no agent can be started: {why}"
            if isinstance(why, Unavailable):
                raise

    async def _fetch_environment(self, wish: DesiredJob) -> None:
        names = _names(wish)
        if not names or wish.job in self._environments:
            return
        try:
            given = await self._client.send(calls.environment(wish.job))
        except Unavailable:
            adopted = await self._call(self._backend.environment, wish.job, names)
            if adopted is None:
                raise
            given = dict(adopted)
        self._environments[wish.job] = given


def _names(wish: DesiredJob) -> frozenset[str]:
    return frozenset(wish.document.get("environment") or ())
