"""Gangs: pods that start together, and that release their nodes together.

A gang is the set of a job's pods that must start together; the operator opens their scheduling
gates at the same time. Even so, only some pods of a gang may get nodes: if the scheduler knows a
constraint that the operator does not know, if another job's pod was faster, or if a node was lost.
These pods keep their nodes for a while, because more nodes may become free, and then release all of
them.
"""

import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta

from brain.types.job import JobDocument
from scaler.kubernetes.dependents.upkeep import Upkeep
from scaler.kubernetes.kinds import ElasticJob
from scaler.kubernetes.pods import gang, identity
from scaler.kubernetes.pods.fitting import NodeCapacity, counted
from scaler.kubernetes.pods.orders import gang_size
from scaler.kubernetes.pods.placement import placed
from scaler.kubernetes.pods.predicates import may_come
from scaler.kubernetes.pods.sight import succeeded
from scaler.kubernetes.runtime.cluster import Object
from scaler.kubernetes.runtime.status import read_instant
from scaler.kubernetes.runtime.store import Store

#: Time for which an incomplete gang keeps its nodes, unless the job names another.
PATIENCE = timedelta(minutes=15)
#: Most pods of a gang whose gates are opened at the same time.
_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GangState:
    """The result of one check of a job's gang."""

    #: Why pods wait; empty if no pod waits.
    waiting: str = ""
    #: The pods that were released, and why; empty if none were.
    let_go: str = ""
    #: Latest time to look again; None to look only after a change.
    look_seconds: float | None = None


class Gangs:
    """Opens gates, and releases the nodes of incomplete gangs."""

    def __init__(self, upkeep: Upkeep, pods: Store, nodes: Store) -> None:
        self._upkeep, self._nodes, self._room = upkeep, nodes, NodeCapacity(nodes, pods)
        self._opening = threading.Lock()
        #: Jobs whose pods found no nodes although the gate opened, and the time until which the
        #: gate stays shut.
        self._shut: dict[str, datetime] = {}
        #: When each job's gang first held nodes in part, as far as this operator saw.
        self._broken: dict[str, datetime] = {}

    def tend(
        self,
        job: ElasticJob,
        document: JobDocument,
        mine: Sequence[Object],
        end: Callable[[Object], None],
        now: datetime,
        leaving: Collection[str] = (),
    ) -> GangState:
        """Check a job's gang once: open the gates of pods that can start, or release the nodes.

        ``end`` is called for each pod that must release its node; its replacement waits behind a
        gate.

        ``leaving`` has the names of pods that are being replaced.
        """
        id, least, held = job.metadata.uid, gang_size(job, document), gang.holding(mine)
        # Once a pod of a job has succeeded, the job ends pod by pod.
        if not 0 < len(held) < least or any(map(succeeded, mine)):
            self._broken.pop(id, None)
            return GangState(waiting=self._open(job, document, mine, now, leaving))
        patience, broke = patience_of(job), self._broken.setdefault(id, now)
        left = (self._since(broke, mine) + patience - now).total_seconds()
        if left > 0:
            waiting = self._open(job, document, mine, now, leaving)
            until = now + timedelta(seconds=left)
            said = f"{len(held)} of {least} pods have nodes and keep them until {until:%H:%M} UTC"
            return GangState(waiting=f"{said}; {waiting}" if waiting else said, look_seconds=left)
        pending = [pod for pod in gang.begun(mine) if pod not in held]
        if pending and placed(pending, self._room.capacity(pending)).refusals is None:
            self._shut[id] = now + patience
        for pod in (*held, *pending):
            end(pod)
        return GangState(
            let_go=(
                f"{len(held)} of the {least} pods that must start together had nodes for "
                f"{_said(patience.total_seconds())}, and no further node became free; these "
                f"pods release their nodes, and the job tries again once {least} pods fit"
            )
        )

    def forget(self, job: str) -> None:
        """Forget the gang of a job that has ended."""
        self._shut.pop(job, None)
        self._broken.pop(job, None)

    def _open(
        self,
        job: ElasticJob,
        document: JobDocument,
        mine: Sequence[Object],
        now: datetime,
        leaving: Collection[str],
    ) -> str:
        """Open the gates of pods that can begin together; return why other pods wait, or ''."""
        waiting = sorted((p for p in mine if gang.gated(p) and gang.stays(p)), key=_id)
        if not waiting:
            return ""
        staying = [pod for pod in gang.begun(mine) if pod["metadata"]["name"] not in leaving]
        begun, least = len(staying), gang_size(job, document)
        # A job of fewer pods than its gang is not complete yet: the rest is being created.
        if begun + len(waiting) < least:
            return f"{begun + len(waiting)} of the {least} pods that must start together exist"
        until = self._shut.get(job.metadata.uid)
        if until is not None and now < until:
            return (
                "the scheduler found no nodes for the job's pods; these pods wait until "
                f"{until:%H:%M} UTC"
            )
        # One gang at a time: two concurrent looks would let two gangs in to the same capacity.
        with self._opening:
            capacity, unit = self._room.capacity(waiting), document.replicas.unit
            waiting = gang.fitting_first(waiting, capacity) if job.groups else waiting
            ready = gang.admitted(waiting, begun, least=least, unit=unit, capacity=capacity)
            # Other gangs wait for this one: a server that takes long to answer would let in one
            # pod of the whole cluster at a time.
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="gate") as pool:
                opened = [
                    pool.submit(self._upkeep.patch, pod, gang.opened(pod, ready.near))
                    for pod in ready.pods
                ]
            for each in opened:
                each.result()
        if len(ready.pods) == len(waiting):
            return ""
        why = f" ({counted(ready.refusals)})" if ready.refusals else ""
        kept = "" if begun else ", and reserves nothing until then"
        return (
            f"{len(waiting) - len(ready.pods)} pods wait for room{why}; the job starts once "
            f"{least} pods fit at the same time{kept}"
        )

    def _since(self, broke: datetime, mine: Sequence[Object]) -> datetime:
        """Return the time of the last change: the gang broke, or a pod or node came or bound."""
        staying = [pod for pod in mine if gang.stays(pod)]
        new = (*staying, *(node for node in self._nodes if may_come(staying[0], node)))
        came = (read_instant(each["metadata"].get("creationTimestamp")) for each in new)
        return max(broke, *(at for at in (*map(gang.bound_at, staying), *came) if at is not None))


def patience_of(job: ElasticJob) -> timedelta:
    """Return the time for which pods keep nodes while other pods of the gang find none."""
    said = job.spec.gang_patience
    return PATIENCE if said is None else timedelta(seconds=said)


def _said(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def _id(pod: Object) -> int:
    found = identity.replica_of(pod)
    return found[1] if found else 0
