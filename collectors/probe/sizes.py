"""Counts the parameters of an optimizer and the examples of a batch."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def parameters(optimizer: Any) -> int:
    """Return the number of scalar parameters that an optimizer trains."""
    return sum(p.numel() for group in optimizer.param_groups for p in group["params"])


def batch(data: Any, depth: int = 0) -> int | None:
    """Return the number of examples in a batch: the first dimension of its first tensor."""
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
        size = batch(part, depth + 1)
        if size is not None:
            return size
    return None
