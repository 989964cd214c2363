"""The exits of a world's workers, in the form that ``launcher.values.diagnosis`` needs. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from brain.types.world import Member
from launcher.values.diagnosis.first import Failed, FinishedWorker, GoneNode
from launcher.values.diagnosis.signs import Signs
from launcher.values.workers import WorkerExit

#: (replica, exit) -> when it was heard, seconds of the coordinator's clock.
Exits = Mapping[tuple[int, WorkerExit], float]


def failed(members: Sequence[Member], exits: Exits) -> list[Failed]:
    """Return the exits of failed workers; a worker whose lease expired has not failed."""
    nodes = {member.replica: member.node for member in members}
    return [
        Failed(
            rank=exit.rank,
            replica=replica,
            node=nodes[replica],
            code=exit.code,
            message=exit.message,
            signs=exit.signs or Signs(tail=exit.last_words),
            heard_at=heard_at,
            stopped=exit.stopped,
        )
        for (replica, exit), heard_at in exits.items()
        if exit.code and not exit.lapsed and replica in nodes
    ]


def succeeded(members: Sequence[Member], exits: Exits) -> list[FinishedWorker]:
    """Return workers that ended with 0 by themselves."""
    nodes = {member.replica: member.node for member in members}
    return [
        FinishedWorker(rank=exit.rank, replica=replica, node=nodes[replica], heard_at=heard_at)
        for (replica, exit), heard_at in exits.items()
        if not exit.code and not exit.stopped and replica in nodes
    ]


def lost(members: Sequence[Member], gone: Iterable[int]) -> list[GoneNode]:
    """Return members whose agents are gone."""
    left = set(gone)
    return [
        GoneNode(replica=member.replica, node=member.node)
        for member in members
        if member.replica in left
    ]
