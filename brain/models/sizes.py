"""Sizes that a job may never have had, and the configurations of its script there.

A *size* counts replicas as everywhere in Brain; underneath, step times are those of data-parallel
copies: ``replicas * processes / (tensor * pipeline)`` on the nodes that exchange gradients. Facts
that nobody declared are judged by the points of the worlds that there were.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from brain.errors import Undetermined
from brain.models.fitting import Point
from brain.models.goodput import Batches
from brain.models.step_time.columns import Configuration
from brain.models.terms import Batching, SpeedTerms, configuration, local_batch
from brain.typeset import count

#: Global batches that differ by less are the same: whole micro-batches round them up.
_SAME = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A size that a job might have: replicas, nodes and accelerator."""

    replicas: int
    #: None: as few as would hold them, judged by what was seen.
    nodes: int | None = None
    #: None: the kind that the job runs on.
    accelerator: str | None = None


def copies_of(replicas: int, terms: SpeedTerms) -> int:
    """Data-parallel copies of the network in so many replicas."""
    return replicas * terms.processes_per_replica // terms.shared


def nodes_of(size: Size, points: Sequence[Point]) -> int:
    """Nodes of a size, packed as tightly as any world was."""
    if size.nodes is not None:
        return min(size.nodes, size.replicas)
    if all(point.nodes == 1 for point in points):
        return 1
    packed = max(-(-point.replicas // point.nodes) for point in points)
    return -(-size.replicas // packed)


def configurations(
    kind: str, sizes: Sequence[Size], rule: Batching, *, points: Sequence[Point], terms: SpeedTerms
) -> list[Configuration]:
    """Return the configuration at each size of one kind if the script's batch followed ``rule``."""
    of_kind = [point for point in points if point.accelerator == kind]
    like = configuration((of_kind or points)[-1], terms)
    found = []
    for size in sizes:
        copies = copies_of(size.replicas, terms)
        share = like.replicas / copies if rule is Batching.GLOBAL else 1.0
        found.append(
            replace(
                like,
                nodes=min(nodes_of(size, points), copies),
                replicas=copies,
                local_batch=like.local_batch * share,
            )
        )
    return found


def largest_local(points: Sequence[Point], terms: SpeedTerms) -> float:
    """Most examples of a micro-batch: declared, else as many as a worker was seen to hold."""
    if math.isfinite(terms.largest_local):
        return terms.largest_local
    return max(local_batch(point) for point in points)


def unspread(replicas: int, batches: Batches, terms: SpeedTerms) -> Undetermined | None:
    """Return why no allowed batch can be spread over so many replicas; None where one can."""
    if batches.spread(copies_of(replicas, terms)):
        return None
    return Undetermined(
        f"no batch up to {batches.top:g} gives each of {count(replicas, 'replica')} the "
        f"{batches.smallest_local:g} that a worker takes at least; take fewer replicas, or raise "
        "batch.globalMax",
        code="no-batch",
    )


def like(one: Configuration, other: Configuration) -> bool:
    """True if two of one size make nearly the same batch, in as many micro-batches."""
    near = abs(one.batch / other.batch - 1) <= _SAME
    return near and one.accumulation == other.accumulation


def same_batch(point: Point, present: Point, rule: Batching) -> bool:
    """True if a point's batch is the one that its size would have now."""
    if present.examples_per_step is None or point.examples_per_step is None:
        return True
    share = point.processes / present.processes
    grown = share if rule is Batching.LOCAL else 1.0
    return abs(point.examples_per_step / (present.examples_per_step * grown) - 1) <= _SAME
