"""What fits a pool beside everything that is reserved there.

A started job reserves the larger of what it is wished and what is observed of it, so that
nothing is promised twice while a world grows or shrinks.
"""

from collections import Counter

from brain.lifecycle.wishes import wished
from brain.ports import Transaction
from brain.types.job import Job, JobState
from brain.types.resources import Node, NodeName, Resources
from brain.types.world import ReplicaState
from brain.typeset import quantity

#: Reserve nothing but what is observed: not started, or stopped.
_IDLE = frozenset({JobState.QUEUED, JobState.SUSPENDED})

_GIB = 2**30
#: Of a job whose replicas reserve nothing, more than anybody would ask for.
UNLIMITED = 1_000_000


def room(tx: Transaction, job: Job) -> int:
    """Return how many replicas of ``job`` fit its pool, those that it has now included."""
    nodes = [node for node in tx.nodes.of(job.pool) if _usable(node, job)]
    free = {node.name: node.capacity for node in nodes}
    for other in tx.jobs.unfinished(job.pool):
        if other.id != job.id:
            _reserve(tx, other, free)
    return _copies(free, job.document.resources)


def largest(tx: Transaction, job: Job) -> int | None:
    """Return how many replicas fit the empty pool; None where no node has registered yet."""
    nodes = tx.nodes.of(job.pool)
    usable = {node.name: node.capacity for node in nodes if _usable(node, job)}
    return _copies(usable, job.document.resources) if nodes else None


def compared(tx: Transaction, job: Job) -> str:
    """Return in words what each replica wants beside what the pool's usable nodes have together."""
    nodes = [node for node in tx.nodes.of(job.pool) if _usable(node, job)]
    if not nodes:
        kind = job.document.accelerator
        return "none of its nodes is usable" + (f" with accelerator {kind}" if kind else "")
    each, all_of = job.document.resources, sum((n.capacity for n in nodes), Resources())
    pairs = [
        (each.cpu_millis, all_of.cpu_millis, "mCPU"),
        (each.memory_bytes / _GIB, all_of.memory_bytes / _GIB, "GiB"),
        (each.gpus, all_of.gpus, "GPU"),
    ]
    wanted = [(want, have, unit) for want, have, unit in pairs if want]
    wants = ", ".join(quantity(want, unit) for want, _, unit in wanted)
    has = ", ".join(quantity(have, unit) for _, have, unit in wanted)
    return f"each wants {wants}; the pool has {has}"


def _usable(node: Node, job: Job) -> bool:
    wants = job.document.accelerator
    return node.schedulable and (wants is None or wants == node.accelerator)


def _copies(free: dict[NodeName, Resources], each: Resources) -> int:
    fits = [each.copies_within(have) for have in free.values()]
    return sum(UNLIMITED if copies is None else copies for copies in fits)


def _reserve(tx: Transaction, job: Job, free: dict[NodeName, Resources]) -> None:
    """Take what ``job`` has from where it is, and what it still waits for from the first fit."""
    each = job.document.resources
    live = [r for r in tx.worlds.replicas(job.id) if r.state is not ReplicaState.EXITED]
    for node, count in Counter(replica.node for replica in live).items():
        if node in free:
            free[node] = free[node] - each.times(count)
    size = 0 if job.state in _IDLE else wished(tx.plans.of(job.id), job)[1].replicas
    for _ in range(size - len(live)):
        fit = next((n for n, have in free.items() if each.copies_within(have) != 0), None)
        if fit is not None:
            free[fit] = free[fit] - each
