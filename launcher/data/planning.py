"""Divides one global batch among ranks and into micro-batches, and computes their weights."""

from dataclasses import dataclass

from brain.errors import BadInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Micro:
    """One micro-batch of one rank: its number of examples, and the weight of its mean loss."""

    #: Number of examples that count; 0 for a filler, which keeps this rank in step.
    size: int
    #: Factor for the mean of its losses.
    weight: float
    #: Whether it is the last one of its step: gradients are exchanged upon it.
    last: bool


def plan(
    global_batch: int, world: int, most_per_replica: int | None = None
) -> tuple[tuple[int, ...], ...]:
    """Return the sizes of each rank's micro-batches, in order; they add up to ``global_batch``.

    Ranks differ by one example at most, and all take the same number of micro-batches, because they
    exchange gradients at the last one. ``most_per_replica`` is the largest micro-batch, in
    examples; with None a rank processes all its examples in one micro-batch. If there are more
    ranks than examples, some sizes are 0.

    >>> plan(10, 3, 2)
    ((2, 2), (2, 1), (2, 1))

    Raises:
        BadInput: an argument is below 1.
    """
    most = global_batch if most_per_replica is None else most_per_replica
    _check(global_batch=global_batch, world=world, most_per_replica=most)
    rounds = -(-_larger(global_batch, world) // most)
    return tuple(_split(share, rounds) for share in _split(global_batch, world))


def weight(size: int, global_batch: int, world: int) -> float:
    """Return the weight of a micro-batch of ``size``: ``size * world / global_batch``.

    A rank backpropagates ``weight * mean(losses)`` for each of its micro-batches, and DDP averages
    the sum over the ranks::

        1/world * sum_rank sum_micro (size * world / global_batch) * (1/size * sum_i grad_i)
            = 1/global_batch * sum_i grad_i

    which is the gradient of the mean loss over the global batch, however uneven the parts are.
    """
    return size * world / global_batch


def _split(count: int, parts: int) -> tuple[int, ...]:
    """Return parts that differ by one at most, the larger first."""
    each, more = divmod(count, parts)
    return tuple(each + (part < more) for part in range(parts))


def _larger(count: int, parts: int) -> int:
    return -(-count // parts)


def _check(**counts: int) -> None:
    for field, count in counts.items():
        if count < 1:
            raise BadInput(f"{field}: {count} is below 1; give at least 1", field=field)
