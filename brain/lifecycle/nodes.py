"""Decides which nodes count as capacity, from the times at which Brain last heard of them.

The service stores each report with its own clock, so the clocks of scalers have no effect.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from brain.ports import Transaction
from brain.types.resources import Node
from brain.types.world import ReplicaState

#: A node is silent once three reports are missing: its scaler repeats each report every 20 s.
_SILENT = timedelta(seconds=60)
#: Silence after which a node leaves the list, unless live replicas are on it.
_GONE = timedelta(days=1)


def silent(node: Node, now: datetime) -> bool:
    """Return True if the node's scaler has stopped reporting the node."""
    return now - node.seen_at >= _SILENT


def heard(nodes: Iterable[Node], now: datetime) -> tuple[Node, ...]:
    """Return the nodes as decisions see them: a silent node accepts no more replicas.

    The node stays in the list, because the replicas on it still count as their jobs' own.
    """
    return tuple(replace(one, schedulable=False) if silent(one, now) else one for one in nodes)


def expected(nodes: Sequence[Node], now: datetime) -> Sequence[Node]:
    """Return the nodes by which Brain judges what a pool could ever hold.

    These are the nodes that are not silent. If all nodes are silent, these are all nodes, because
    then the pool's scaler is away, and the nodes probably still exist.
    """
    return [one for one in nodes if not silent(one, now)] or nodes


def forget_gone(tx: Transaction, now: datetime) -> int:
    """Remove the nodes that have been silent for a day; return their number.

    A node stays until the scaler has reported the end of every replica on that node.
    """
    old = [one.name for one in tx.nodes.of() if now - one.seen_at >= _GONE]
    held = {
        replica.node
        for replicas in tx.worlds.on(old).values()
        for replica in replicas
        if replica.state is not ReplicaState.EXITED
    }
    gone = [name for name in old if name not in held]
    if gone:
        tx.nodes.remove(gone)
    return len(gone)
