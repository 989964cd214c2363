"""Builds the scaler's reports to Brain from its observations."""

from dataclasses import replace

from brain.types.resources import Node, NodeName
from brain.types.world import Replica, ReplicaExit, ReplicaReport, ReplicaState
from scaler.ports import NOTHING, ReplicaPhase, ReplicaSeen
from scaler.reconcile import GiveUp

_STATES = {
    ReplicaPhase.INTENDED: ReplicaState.STARTING,
    ReplicaPhase.STARTING: ReplicaState.STARTING,
    ReplicaPhase.RUNNING: ReplicaState.RUNNING,
    # Its end is not written down yet; once it is, every report has the same words.
    ReplicaPhase.GONE: ReplicaState.RUNNING,
    ReplicaPhase.ENDED: ReplicaState.EXITED,
}


def failed(never: GiveUp) -> ReplicaSeen:
    """Return the observation of a replica that failed before it was recorded. Repeated calls return
    equal observations.
    """
    return ReplicaSeen(
        id=never.replica,
        phase=ReplicaPhase.ENDED,
        generation=never.generation,
        started_at=never.at,
        ended_at=never.at,
        exit=ReplicaExit.FAILED,
        detail=never.detail,
    )


def reported(seen: ReplicaSeen, node: NodeName) -> Replica:
    """Return a replica in the form of a report; ``node`` is used if the replica names none."""
    return Replica(
        id=seen.id,
        role=seen.group,
        node=seen.node or node,
        state=_STATES[seen.phase],
        generation=seen.generation,
        started_at=seen.started_at,
        ended_at=seen.ended_at,
        exit=seen.exit,
        exit_code=seen.exit_code if seen.phase is ReplicaPhase.ENDED else None,
        detail=seen.detail if seen.phase is ReplicaPhase.ENDED else "",
        unfit=seen.unfit,
        resources=None if seen.resources == NOTHING else seen.resources,
        unenforced=seen.unenforced,
    )


def begins(before: ReplicaReport | None, report: ReplicaReport) -> bool:
    """True if the only news in a report is about replicas that do not run yet."""
    known, waiting = (before.replicas, before.waiting) if before is not None else ((), None)
    kept, added = report.replicas[: len(known)], report.replicas[len(known) :]
    starting = all(each.state is ReplicaState.STARTING for each in added)
    return kept == known and report.waiting in (None, waiting) and bool(added) and starting


def worth_telling(before: Node, node: Node, repeat_seconds: float) -> bool:
    """True if a node has changed, or was last reported too long ago."""
    age = (node.seen_at - before.seen_at).total_seconds()
    return replace(before, seen_at=node.seen_at) != node or abs(age) >= repeat_seconds
