"""Facts about a job's replicas beside their pods, which are lost with this process.

They are pods that were asked for and are not reflected yet, pods that vanished, replicas that were
asked to leave, and Brain's last word. Nothing here asks anybody.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from brain.types.job import JobId
from brain.types.resources import Resources
from brain.types.world import ReplicaEnd, ReplicaExit
from scaler.kubernetes.kinds.documents.templates import reserved
from scaler.kubernetes.pods.sight import ended_as, look
from scaler.kubernetes.runtime.cluster.kind import Key, Object, key_of
from scaler.ports import ReplicaPhase, ReplicaSeen

#: A pod that was created and is not reflected after so long is not there.
_UNSEEN = timedelta(seconds=30)
#: After a refusal pods of a job are asked for again after so long, and twice as long after each
#: further one that judged them (a quota, a policy).
_REFUSED, _LONGEST = timedelta(seconds=10), timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The API server's last refusal of a pod, and the time until which no other is asked for."""

    said: str
    until: datetime
    pause: timedelta


@dataclass(slots=True)
class Sent:
    """A pod that was asked for and is not reflected yet."""

    pod: Object
    key: Key
    reserves: Resources
    #: The API server has it, or one of its name.
    taken: bool = False
    #: When that was first known to whoever looked.
    taken_at: datetime | None = None

    @staticmethod
    def of(pod: Object) -> "Sent":
        """This pod."""
        return Sent(pod, key_of(pod), reserved(pod))


@dataclass(slots=True)
class JobCache:
    """The memory of one job; replicas by id."""

    #: Above every id that is known to be used; None: nobody has looked what was used before.
    next: int | None = None
    #: None once the API server took a pod.
    refused: Refusal | None = None
    #: Replicas that the world has, as Brain last said; None: nobody knows.
    named: frozenset[int] | None = None
    epoch: int = 0
    sent: dict[int, Sent] = field(default_factory=dict)
    gone: dict[int, ReplicaSeen] = field(default_factory=dict)
    #: When each was first asked to leave.
    asked: dict[int, datetime] = field(default_factory=dict)

    def seen(self, pods: Mapping[int, Object], now: datetime) -> dict[int, ReplicaSeen]:
        """Every replica by id, the surest source last. ``pods``: those that are reflected."""
        found = dict(self.gone)
        for id in list(self.sent):
            found[id] = self._unseen(id, now)
        for id, pod in pods.items():
            one, closed = look(pod, id), self.gone.get(id)
            if (
                one.phase is ReplicaPhase.GONE
                and closed is not None
                and closed.phase is ReplicaPhase.ENDED
            ):
                one = closed
            found[id] = replace(one, asked_at=self.asked.get(id, one.asked_at))
        return found

    def _unseen(self, id: int, now: datetime) -> ReplicaSeen:
        """One that was asked for and is not reflected yet, or, after a while, never was there."""
        sent = self.sent[id]
        one = look(sent.pod, id)
        if sent.taken and sent.taken_at is None:
            sent.taken_at = now
        if sent.taken_at is None or now - sent.taken_at < _UNSEEN:
            return one
        del self.sent[id]
        # Nothing ran, so nothing is lost.
        never = ReplicaEnd(
            exit=ReplicaExit.CANCELLED, detail="its pod never came into being", at=now
        )
        self.gone[id] = ended_as(one, never)
        return self.gone[id]

    def refusal(self, now: datetime) -> str | None:
        """Why the API server takes no pod of this job just now."""
        return None if self.refused is None or now >= self.refused.until else self.refused.said

    def refuse(self, said: str, now: datetime, *, heard: bool = True) -> None:
        """The API server says no to a pod that was asked for at ``now``.

        ``heard``: it judged the pod. One that is away, or busy, may be back at any moment.
        """
        pause, before = _REFUSED, self.refused
        if before is not None and heard:
            # Those that were asked for together are refused together.
            together = now < before.until
            pause = before.pause if together else min(2 * before.pause, _LONGEST)
        self.refused = Refusal(said, now + pause, pause)

    @property
    def empty(self) -> bool:
        """True if no replica is remembered."""
        return not self.sent and not self.gone


def on_the_way(jobs: Mapping[JobId, JobCache]) -> Iterator[Sent]:
    """Every pod that was asked for and is not reflected yet."""
    for known in list(jobs.values()):
        yield from list(known.sent.values())
