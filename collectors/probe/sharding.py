"""Measures the size in bytes of one worker's part of the training state, if the workers divide the
state among themselves.
"""

from __future__ import annotations

import sys

from .measures import WARMUP_STEPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

#: Size of a worker's part if the state is divided, but the size is unknown.
UNKNOWN = 0


class Part:
    """The size of this worker's part of the training state. It is measured rarely, because a large
    network has many tensors.
    """

    def __init__(self) -> None:
        self.due = WARMUP_STEPS
        self.bytes: int | None = None

    def read(self, steps: int, optimizer: Any, zeros: Iterable[Any]) -> int | None:
        """Return the last measured size in bytes of this worker's part of the training state.

        ``UNKNOWN``: the size is unknown. None: each worker has the complete state, or nothing was
        measured yet. The size is measured again only when the number of steps has doubled.
        """
        if optimizer is not None and steps >= self.due:
            self.due, self.bytes = 2 * steps, UNKNOWN
            self.bytes = sharded_bytes(optimizer, zeros)
        return self.bytes


def is_sharded(parameter: Any) -> bool:
    """True if a parameter is a part of a larger one (FSDP, tensor parallelism)."""
    return hasattr(parameter, "device_mesh") or getattr(parameter, "_fsdp_flattened", False)


def sharded_bytes(optimizer: Any, zeros: Iterable[Any]) -> int | None:
    """Return the size in bytes of this worker's part of the state.

    Returns ``UNKNOWN`` if the size is unknown, None if each worker has the complete state. The part
    contains the optimizer's state, and gradients and parameters if these are divided, too.
    ``zeros`` are the optimizers of DeepSpeed's stages 1 and 2, each of which wraps another
    optimizer.
    """
    module = sys.modules.get("torch.distributed.optim.zero_redundancy_optimizer")
    divides = getattr(module, "ZeroRedundancyOptimizer", None)
    if divides is not None and isinstance(optimizer, divides):
        local = getattr(optimizer, "optim", None)  # it may come with the first steps
        return UNKNOWN if local is None else _state_bytes(local)
    own = [each for group in optimizer.param_groups for each in group["params"]]
    for zero in list(zeros):
        if getattr(zero, "optimizer", None) is optimizer:
            if getattr(zero, "cpu_offload", False):
                return UNKNOWN
            # The optimizer's parameters are this worker's part of a copy in full precision.
            copies = 2 if getattr(zero, "partition_gradients", False) else 1
            return _state_bytes(optimizer) + copies * _bytes_of(own)
    if any(map(is_sharded, own)):
        return _state_bytes(optimizer) + 2 * _bytes_of(own)
    return UNKNOWN if any(hasattr(each, "ds_id") for each in own) else None


def _state_bytes(optimizer: Any) -> int:
    """Return the bytes of the tensors in an optimizer's state."""
    states = [state for state in list(optimizer.state.values()) if hasattr(state, "values")]
    return sum(_bytes_of(state.values()) for state in states)


def _bytes_of(values: Iterable[Any]) -> int:
    """Return the bytes of the tensors among ``values``; distributed ones count their local part."""
    local = [getattr(each, "_local_tensor", each) for each in values]
    return sum(each.numel() * each.element_size() for each in local if hasattr(each, "numel"))
