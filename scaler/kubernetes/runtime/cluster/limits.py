"""Limits of the client for the API server, and its pauses before another attempt."""

from dataclasses import dataclass
from random import Random

from scaler.kubernetes.runtime.cluster.errors import TooMany, Unreachable
from scaler.kubernetes.runtime.pace import Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Limits of the client for the API server."""

    #: Most concurrent requests, watches aside; one of them is reserved for leases.
    in_flight: int = 8
    request_seconds: float = 10.0
    #: Seconds without any event, bookmarks included, after which a watch counts as cut.
    silence_seconds: float = 90.0
    #: Most attempts of a request, and most seconds that its repetitions may take in all.
    attempts: int = 4
    patience_seconds: float = 10.0
    pauses: Backoff = Backoff(first_seconds=0.2, longest_seconds=5.0)

    def __post_init__(self) -> None:
        if self.in_flight < 2:
            raise ValueError(
                f"in_flight is {self.in_flight}, but must be at least 2, because one request is "
                "reserved for leases"
            )

    def pause(
        self, why: TooMany | Unreachable, attempt: int, random: Random, *, safe: bool, patient: bool
    ) -> float | None:
        """Return seconds until the next attempt; None if there is none."""
        # A request that was refused for its number was not carried out, so it may always be
        # repeated.
        if attempt >= self.attempts or not patient:
            return None
        if not (safe or isinstance(why, TooMany)):
            return None
        return max(self.pauses.pause(attempt, random), why.retry_after_seconds or 0.0)
