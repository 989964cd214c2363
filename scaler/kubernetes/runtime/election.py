"""Elects the operator that acts, which is the holder of a Lease. At most one operator writes at any
time.

Clocks of machines are never compared. A leader counts its term, on its own clock, from the moment
*before* it sent the renewal that succeeded. A follower counts, on its own clock, from the moment it
first saw the lease's present version. A follower takes over only if the lease has not changed for
the whole duration that the lease names. A leader stops writing ``renew_seconds`` after its last
request, and a follower waits ``lease_seconds`` after the last change that it saw; the difference is
the time that a request in flight may take. Time asleep counts (CLOCK_BOOTTIME). Every write of the
lease names the version that it replaces, so only one of two candidates gets the lease.

If a leader's lease expires and no other candidate takes the lease, the former leader may take the
lease again, because nobody acted meanwhile. If another candidate took the lease, the former leader
never leads again, because it may not know what the other candidate did.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from random import Random
from typing import Any, Protocol

from brain.errors import BrainError, Conflict, NotFound
from scaler.kubernetes.runtime.cluster.errors import NotLeading
from scaler.kubernetes.runtime.cluster.kind import LEASE, Kind, Object, version_of
from scaler.kubernetes.runtime.pace import Clock, spread

#: Holder of a new lease. It never renews, so a candidate that waited for its end may take the
#: lease.
NOBODY = "nobody-yet"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionTerms:
    """The durations of an election, in seconds.

    If the server answers at once, a second operator acts at most ``lease_seconds`` + 1.2 ×
    ``retry_seconds`` after the first one's last renewal: 8.2 s by default.
    """

    namespace: str
    name: str = "brain-scaler"
    #: Seconds without renewal after which another may take the lease.
    lease_seconds: float = 7.0
    #: Seconds without a successful renewal after which a leader stops writing.
    renew_seconds: float = 5.0
    retry_seconds: float = 1.0

    def __post_init__(self) -> None:
        if not self.retry_seconds < self.renew_seconds < self.lease_seconds:
            raise ValueError(
                f"retry_seconds {self.retry_seconds:g}, renew_seconds {self.renew_seconds:g} and "
                f"lease_seconds {self.lease_seconds:g} must increase in this order, or two "
                "instances could lead at once"
            )


class Leases(Protocol):
    """The methods of ``Cluster`` that an election needs."""

    def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]: ...
    def create(self, kind: Kind, obj: Object) -> dict[str, Any]: ...
    def merge(self, kind: Kind, namespace: str, name: str, patch: Object) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Sighting:
    """The last seen version of the lease, and when this process saw it, by its own clock."""

    holder: str
    seconds: float
    transitions: int
    version: str
    at: float

    def free(self, identity: str, now: float) -> bool:
        """True if ``identity`` may take the lease."""
        return self.holder in ("", identity) or now - self.at >= self.seconds


def sight(lease: Object, known: Sighting | None, default_seconds: float, now: float) -> Sighting:
    """Return the sighting of a lease that was just read; ``known`` if the lease is unchanged."""
    version = version_of(lease)
    if known is not None and known.version == version:
        return known
    spec: Mapping[str, Any] = lease.get("spec") or {}
    return Sighting(
        holder=spec.get("holderIdentity") or "",
        # Another version's holder may promise another duration; ours is the minimum.
        seconds=max(default_seconds, float(spec.get("leaseDurationSeconds") or 0)),
        transitions=int(spec.get("leaseTransitions") or 0),
        version=version,
        at=now,
    )


class Election:
    """This operator's part in the election.

    ``run`` belongs to one thread; any thread may ask ``left`` and ``leading``.
    """

    def __init__(
        self,
        leases: Leases,
        terms: ElectionTerms,
        identity: str,
        *,
        clock: Clock,
        random: Random,
        told: Callable[[bool], None] = lambda leading: None,
    ) -> None:
        self._leases, self._terms, self.identity = leases, terms, identity
        self._clock, self._random, self._told = clock, random, told
        self._seen: Sighting | None = None
        #: Time until which this operator may write, on its clock.
        self._until = -float("inf")
        self._led = False
        #: True if this operator has led, and then another one may have.
        self.deposed = False
        #: True once this operator has led.
        self._acted = False
        #: The last message about a failure, which is not repeated at every attempt.
        self._trouble = ""
        self._changed = threading.Condition()

    @property
    def leading(self) -> bool:
        """True if this operator may act now."""
        return self._clock.elapsed() < self._until

    @property
    def holder(self) -> str:
        """Return the operator last seen to hold the lease; empty if none."""
        return self._seen.holder if self._seen else ""

    def left(self) -> float:
        """Return the seconds in which this operator may still write.

        Raises:
            NotLeading: no time remains.
        """
        left = self._until - self._clock.elapsed()
        if left <= 0.0:
            raise NotLeading(
                f"{self.identity} does not hold lease {self._terms.namespace}/{self._terms.name}"
            )
        return left

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` until this operator leads; return True if it does."""
        with self._changed:
            return self.leading or self._changed.wait_for(lambda: self.leading, seconds)

    def run(self, stop: threading.Event) -> None:
        """Take part in the election until ``stop`` is set.

        Afterwards the lease expires, unless ``release`` gives it up earlier.
        """
        while not stop.is_set():
            stop.wait(self.step())

    def step(self) -> float:
        """Renew, take or watch the lease; return seconds until the next step."""
        asked = self._clock.elapsed()
        try:
            if self._take(asked):
                self._lead(asked + self._terms.renew_seconds)
            else:
                self._lead(-float("inf"))
            self._trouble = ""
        except Conflict as why:
            # Another operator changed the lease first: the next step reads it.
            log.debug("lease: %s", why)
            self._lead(self._until)
        except BrainError as why:
            level = logging.DEBUG if self._trouble == str(why) else logging.WARNING
            log.log(level, "lease: %s", why)
            self._trouble = str(why)
            self._lead(self._until)
        except Exception:
            # Without this thread no operator would ever lead here, and nothing else would report
            # that.
            log.exception("lease")
            self._lead(self._until)
        return self._pause()

    def _pause(self) -> float:
        """Return seconds until the next step, which comes no later than another's lease ends."""
        pause, seen = spread(self._terms.retry_seconds, self._random), self._seen
        if self.leading or seen is None:
            return pause
        left = seen.at + seen.seconds - self._clock.elapsed()
        return min(pause, left) if left > 0.0 else pause

    def release(self) -> None:
        """Give up the lease, so that another operator need not wait, and write nothing afterwards.

        Call this only after ``run`` has ended, and when no write is in flight.
        """
        seen, mine = self._seen, self._led
        self._lead(-float("inf"))
        if seen is None or not mine:
            return
        try:
            self._write(seen, {"holderIdentity": "", "leaseDurationSeconds": 1})
        except BrainError as why:
            log.info(
                "the lease could not be released, so another instance waits until it expires: %s",
                why,
            )

    def _take(self, now: float) -> bool:
        """Look at the lease and try to take it if it is free; True if it is this operator's."""
        try:
            lease = self._leases.get(LEASE, self._terms.namespace, self._terms.name)
        except NotFound:
            # Somebody may have deleted the lease without its holder's notice: only the leader may
            # take the new one at once.
            mine = self.leading
            self._seen = self._see(self._leases.create(LEASE, self._new(mine)))
            return mine
        seen = self._seen = self._see(lease)
        self.deposed = self.deposed or (self._acted and seen.holder != self.identity)
        if self.deposed or not seen.free(self.identity, now):
            return False
        taken = seen.holder != self.identity
        spec: dict[str, Any] = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": ceil(self._terms.lease_seconds),
            "renewTime": _micro(self._clock.now()),
        }
        if taken:
            spec |= {
                "acquireTime": spec["renewTime"],
                "leaseTransitions": seen.transitions + 1,
            }
        self._seen = self._see(self._write(seen, spec))
        return True

    def _write(self, seen: Sighting, spec: Mapping[str, Any]) -> dict[str, Any]:
        patch = {"metadata": {"resourceVersion": seen.version}, "spec": spec}
        return self._leases.merge(LEASE, self._terms.namespace, self._terms.name, patch)

    def _see(self, lease: Object) -> Sighting:
        return sight(lease, self._seen, self._terms.lease_seconds, self._clock.elapsed())

    def _new(self, mine: bool) -> dict[str, Any]:
        now = _micro(self._clock.now())
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {"namespace": self._terms.namespace, "name": self._terms.name},
            "spec": {
                "holderIdentity": self.identity if mine else NOBODY,
                "leaseDurationSeconds": ceil(self._terms.lease_seconds),
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": 0,
            },
        }

    def _lead(self, until: float) -> None:
        with self._changed:
            self._until = until
            leading = self.leading
            if leading == self._led:
                return
            self._led = leading
            self._acted = self._acted or leading
            self._changed.notify_all()
        log.info("%s %s", self.identity, "leads" if leading else f"follows {self.holder or '?'}")
        self._told(leading)


def _micro(at: datetime) -> str:
    """Format an instant as the API's MicroTime."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
