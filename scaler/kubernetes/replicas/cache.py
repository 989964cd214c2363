"""Facts about a job's replicas that no pod stores and that are lost when the operator restarts.

The cache has requested pods that stores do not show yet, vanished pods, replicas that should leave,
and Brain's last report. No function of this module sends a request.
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

#: Time after which a created pod that is not reflected counts as missing.
_UNSEEN = timedelta(seconds=30)
#: Pause before the operator requests pods of a job again after a refusal, doubled after each
#: further refusal that judged the pods (a quota, a policy).
_REFUSED, _LONGEST = timedelta(seconds=10), timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The API server's last refusal of a pod, and the time of the next attempt."""

    said: str
    until: datetime
    pause: timedelta


@dataclass(slots=True)
class Sent:
    """A requested pod that the stores do not show yet."""

    pod: Object
    key: Key
    reserves: Resources
    #: True if the API server has this pod, or one of its name.
    taken: bool = False
    #: When a look first found the pod accepted.
    taken_at: datetime | None = None

    @staticmethod
    def of(pod: Object) -> "Sent":
        """Return the record of a requested pod."""
        return Sent(pod, key_of(pod), reserved(pod))


@dataclass(slots=True)
class JobCache:
    """The cached facts of one job; replicas by id."""

    #: An id greater than every used id; None until the used ids were read.
    next: int | None = None
    #: The last refusal; None once the API server accepted a pod.
    refused: Refusal | None = None
    #: Replicas of the world, by Brain's last report; None if not known.
    named: frozenset[int] | None = None
    epoch: int = 0
    sent: dict[int, Sent] = field(default_factory=dict)
    gone: dict[int, ReplicaSeen] = field(default_factory=dict)
    #: When each replica was first asked to leave.
    asked: dict[int, datetime] = field(default_factory=dict)

    def seen(self, pods: Mapping[int, Object], now: datetime) -> dict[int, ReplicaSeen]:
        """Return every replica by id, from the stored ``pods`` and the cached facts.

        If they disagree about a replica, the most certain source is used.
        """
        found = dict(self.gone)
        for id in [id for id in self.sent if id not in pods]:
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
        """Return a requested replica that is not reflected; after a while it ends as cancelled."""
        sent = self.sent[id]
        one = look(sent.pod, id)
        if sent.taken and sent.taken_at is None:
            sent.taken_at = now
        if sent.taken_at is None or now - sent.taken_at < _UNSEEN:
            return one
        del self.sent[id]
        # The replica never ran, so no work is lost.
        never = ReplicaEnd(exit=ReplicaExit.CANCELLED, detail="its pod was never created", at=now)
        self.gone[id] = ended_as(one, never)
        return self.gone[id]

    def refusal(self, now: datetime) -> str | None:
        """Return why the API server accepts no pod of this job at present."""
        return None if self.refused is None or now >= self.refused.until else self.refused.said

    def refuse(self, said: str, now: datetime, *, heard: bool = True) -> None:
        """Record that the API server refused a pod that was requested at ``now``.

        ``heard`` is True if the API server itself refused the pod, and False if the server was
        unreachable or busy, and so may recover at any moment.
        """
        pause, before = _REFUSED, self.refused
        if before is not None and heard:
            # Pods that were requested together are refused together.
            together = now < before.until
            pause = before.pause if together else min(2 * before.pause, _LONGEST)
        self.refused = Refusal(said, now + pause, pause)

    @property
    def empty(self) -> bool:
        """True if no replica is cached."""
        return not self.sent and not self.gone


def on_the_way(jobs: Mapping[JobId, JobCache]) -> Iterator[Sent]:
    """Return every requested pod that the stores do not show yet."""
    for known in list(jobs.values()):
        yield from list(known.sent.values())
