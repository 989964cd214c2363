"""Sizes that a job may never have had, and the script's configurations at these sizes.

A *size* counts replicas, as everywhere in Brain. Step times are modelled as a function of
data-parallel copies: ``replicas * processes / (tensor * pipeline)`` on the nodes that exchange
gradients. Undeclared facts are inferred from the points of earlier worlds.
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

#: Relative difference below which two global batches are the same: whole micro-batches round them
#: up.
_SAME = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A size that a job could have: replicas, nodes and accelerator."""

    replicas: int
    #: Nodes; None: as few as would hold the replicas, judged by earlier worlds.
    nodes: int | None = None
    #: Kind of accelerator; None: the kind that the job runs on.
    accelerator: str | None = None


def copies_of(replicas: int, terms: SpeedTerms) -> int:
    """Return the number of data-parallel copies of the network in ``replicas``."""
    return replicas * terms.processes_per_replica // terms.shared


def nodes_of(size: Size, points: Sequence[Point]) -> int:
    """Return the number of nodes for a size, if each node holds as many replicas as in the densest
    earlier world.
    """
    if size.nodes is not None:
        return min(size.nodes, size.replicas)
    if all(point.nodes == 1 for point in points):
        return 1
    packed = max(-(-point.replicas // point.nodes) for point in points)
    return -(-size.replicas // packed)


def configurations(
    kind: str,
    sizes: Sequence[Size],
    rule: Batching,
    *,
    points: Sequence[Point],
    terms: SpeedTerms,
    others: Sequence[Configuration] = (),
) -> list[Configuration]:
    """Return the configuration at each size on one kind of accelerator, if the script's batch size
    follows ``rule``.

    ``others`` are configurations that other runs of the script had on that kind.
    """
    of_kind = [point for point in points if point.accelerator == kind]
    own = [configuration(point, terms) for point in reversed(of_kind or points)]
    found = []
    for size in sizes:
        copies = copies_of(size.replicas, terms)
        same = replace(own[0], nodes=min(nodes_of(size, points), copies), replicas=copies)
        if rule is Batching.GLOBAL:
            micro = micro_batches(copies, own[0], (*own, *others))
            same = replace(same, local_batch=own[0].batch / copies / micro, accumulation=micro)
        found.append(same)
    return found


def micro_batches(copies: int, like: Configuration, seen: Sequence[Configuration]) -> int:
    """Return the micro-batches of a step over ``copies``, if the script keeps its global batch
    size.

    A script accumulates gradients because its share of the batch does not fit a device, so with
    more copies the script makes fewer micro-batches, each at most as large as the largest
    micro-batch in ``seen``. If ``seen`` contradicts this, the script is assumed to keep its present
    number of micro-batches.
    """
    same = [one for one in seen if abs(one.batch / like.batch - 1) <= _SAME]
    largest = max(one.local_batch for one in same)

    def needed(copies: int) -> int:
        return max(1, math.ceil(like.batch / copies / largest - _SAME))

    known = next((one.accumulation for one in same if one.replicas == copies), None)
    if known is not None:
        return known
    follows = all(one.accumulation == needed(one.replicas) for one in same)
    accumulates = any(one.accumulation > 1 for one in same)
    return needed(copies) if follows and accumulates else like.accumulation


def largest_local(points: Sequence[Point], terms: SpeedTerms, kind: str | None = None) -> float:
    """Return the most examples of a micro-batch on a kind of accelerator; None means the newest
    point's kind.

    The result is the declared number; if no number is declared, it is the largest micro-batch that
    a worker has processed.
    """
    on = points[-1].accelerator if kind is None else kind
    declared = dict(terms.largest_local_on).get(on, terms.largest_local)
    if math.isfinite(declared):
        return declared
    return max(local_batch(point) for point in points)


def unspread(replicas: int, batches: Batches, terms: SpeedTerms) -> Undetermined | None:
    """Return why ``replicas`` cannot divide any allowed batch size; None if they can."""
    if batches.spread(copies_of(replicas, terms)):
        return None
    return Undetermined(
        f"no batch up to {batches.top:g} gives each worker of {count(replicas, 'replica')} at "
        f"least {batches.smallest_local:g} examples; take fewer replicas, or raise batch.globalMax",
        code="no-batch",
    )


def like(one: Configuration, other: Configuration) -> bool:
    """Return True if two configurations of one size have nearly equal batch sizes and the same
    number of micro-batches.
    """
    near = abs(one.batch / other.batch - 1) <= _SAME
    return near and one.accumulation == other.accumulation


def same_batch(point: Point, present: Point, rule: Batching) -> bool:
    """Return True if a point's batch size is the batch size that the script would use now at the
    point's job size.
    """
    if present.examples_per_step is None or point.examples_per_step is None:
        return True
    share = point.processes / present.processes
    grown = share if rule is Batching.LOCAL else 1.0
    return abs(point.examples_per_step / (present.examples_per_step * grown) - 1) <= _SAME
