"""Turns pods into reports on replicas, for jobs that no scaler of Brain runs, and turns a cluster's
nodes into values of Brain's type ``Node``.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from brain.types.job import JobId
from brain.types.resources import Node, NodeName, PoolName
from brain.types.world import Replica, ReplicaExit, ReplicaReport, ReplicaState
from collectors.pods.identity import PodStay, Stays, replica_of
from collectors.pods.sights import NodeSight

#: Label of pods that a scaler reports.
MANAGED = "app.kubernetes.io/managed-by"
#: Part of the names of pods that this collector reports; ids in these names are never reused.
_TOLD = "-edljob-"


def reports(stays: Stays, ours: Iterable[JobId], now: datetime) -> list[ReplicaReport]:
    """Return a report for each job of ``ours`` whose pods belong to DLRover.

    Only this collector reports such pods.
    """
    wanted = frozenset(ours)
    found: dict[JobId, list[PodStay]] = {}
    for stay in stays.all.values():
        if stay.job in wanted and _TOLD in stay.pod.name and not _scaled(stay):
            found.setdefault(stay.job, []).append(stay)
    return [_report(job, found[job], now) for job in sorted(found)]


def phases(stays: Stays) -> dict[str, dict[str, int]]:
    """Return the number of present pods, by job and phase; pods without a job are left out."""
    counts: dict[str, Counter[str]] = {}
    for stay in stays.all.values():
        if stay.job is not None and (stay.end is None or stay.pod.end is not None):
            counts.setdefault(stay.job, Counter())[stay.pod.phase] += 1
    return {job: dict(each) for job, each in sorted(counts.items())}


def nodes(seen: Iterable[NodeSight], pool: PoolName, now: datetime) -> list[Node]:
    """Return the nodes to register. A node that is not ready is left out, so that Brain considers
    it lost.
    """
    return [
        Node(
            name=NodeName(each.name),
            pool=pool,
            capacity=each.allocatable,
            accelerator=each.accelerator,
            seen_at=now,
            schedulable=each.schedulable,
        )
        for each in seen
        if each.ready
    ]


def _scaled(stay: PodStay) -> bool:
    return stay.pod.labels.get(MANAGED, "").startswith("brain")


def _report(job: JobId, stays: list[PodStay], now: datetime) -> ReplicaReport:
    replicas = [replica for stay in stays if (replica := _replica(stay)) is not None]
    replicas.sort(key=lambda each: (each.role, each.id))
    waiting = next((s.pod.waiting for s in stays if s.end is None and s.pod.waiting), None)
    return ReplicaReport(job=job, replicas=tuple(replicas), waiting=waiting, at=now)


def _replica(stay: PodStay) -> Replica | None:
    said = replica_of(stay.pod)
    if said is None or (stay.pod.node is None and stay.end is None):
        # Not bound: it is on no node that could be told; the report says why it waits.
        return None
    role, id = said
    exit, code, detail = _ended(stay)
    running = stay.pod.phase == "Running"
    return Replica(
        id=id,
        role=role,
        node=NodeName(stay.pod.node or ""),
        state=ReplicaState.EXITED
        if stay.end
        else (ReplicaState.RUNNING if running else ReplicaState.STARTING),
        generation=0,
        started_at=stay.begin,
        ended_at=stay.end,
        exit=exit,
        exit_code=code,
        detail=detail,
    )


def _ended(stay: PodStay) -> tuple[ReplicaExit | None, int | None, str]:
    if stay.end is None:
        return None, None, ""
    end = stay.pod.end
    if end is None:
        return ReplicaExit.LOST, None, "its pod was removed before it ended"
    if end.succeeded:
        return ReplicaExit.SUCCEEDED, 0, ""
    lost = end.reason in ("Evicted", "Preempted", "NodeLost", "NodeShutdown", "Preempting")
    exit = ReplicaExit.LOST if lost else ReplicaExit.FAILED
    return exit, end.code, f"{end.reason}: {end.detail}" if end.detail else end.reason


def unclaimed(stays: Stays, known: Mapping[str, object]) -> int:
    """Return the number of jobs that have pods in the cluster and that Brain does not know."""
    return len({s.job for s in stays.all.values() if s.job is not None and s.job not in known})
