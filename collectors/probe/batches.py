"""Counts the batches that a script's loaders read for a step, and their examples."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Batches:
    """The batches that were read since the last step."""

    def __init__(self) -> None:
        self.loaders: dict[int, list[Any]] = {}  # loader -> [micro-batches, wait, examples, batch]
        self.newest_loader = 0
        # Loader -> steps before which it was read, where several are read for one step.
        self.rounds: dict[int, int] = {}

    def add(self, sampler: Any, data: Any, wait: int) -> None:
        """Count a batch for which training waited ``wait`` nanoseconds."""
        batch = size(data)
        if batch is None:
            batch = getattr(sampler, "batch_size", None)
        key = self.newest_loader = id(sampler)
        read = self.loaders.get(key)
        if read is None:
            read = self.loaders[key] = [0, 0, 0, None]
        read[0] += 1
        read[1] += wait
        read[2] += batch or 0
        read[3] = batch

    def take(self, steps: int) -> tuple[list[Any], bool]:
        """Return the batches that were read for a step, and True if other batches were read for an
        evaluation; then forget all of them.

        If several loaders were read, the last one belongs to the step. A loader that is read before
        most steps counts as well. Any other loader belongs to an evaluation.
        """
        if len(self.loaders) == 1:
            return self.loaders.popitem()[1], False
        evaluating = False
        read = self.loaders.pop(self.newest_loader)
        for key, other in self.loaders.items():
            self.rounds[key] = self.rounds.get(key, 0) + 1
            if 2 * self.rounds[key] > steps:
                read[1] += other[1]
            else:
                evaluating = True
        self.loaders.clear()
        return read, evaluating


def size(data: Any, depth: int = 0) -> int | None:
    """Return the number of examples in a batch, which is the first dimension of its first tensor;
    None if the batch has no such tensor.
    """
    shape = getattr(data, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    if depth == 3 or isinstance(data, (str, bytes)):
        return None
    if hasattr(data, "values"):
        data = data.values()
    elif not isinstance(data, (tuple, list)):
        return None
    for part in data:  # a generator would cost as much as all the rest
        found = size(part, depth + 1)
        if found is not None:
            return found
    return None
