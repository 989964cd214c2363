"""Checks if a job's gradients can be compared, and finds the reason if not."""

from __future__ import annotations

import sys

from .sharding import is_sharded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

#: Communication hooks after which every worker has the mean gradient, except for rounding.
AVERAGING = {"allreduce_hook", "fp16_compress_hook", "bf16_compress_hook"}


class NotComparable(Exception):
    """The gradients of this job cannot be compared; the text is the reason."""


class Odd(NotComparable):
    """The gradients of one step cannot be compared, but the gradients of other steps perhaps can;
    the text is the reason.
    """


def trained_by(optimizer: Any) -> list[Any]:
    """Return the parameters that an optimizer trains; raise ``NotComparable`` if a worker has only
    parts of these parameters.
    """
    own = [each for group in optimizer.param_groups for each in group["params"]]
    own = [each for each in own if each.requires_grad]
    for each in own:
        if is_sharded(each):
            raise NotComparable("parameters are sharded (FSDP or tensor parallelism)")
        if hasattr(each, "ds_id"):
            raise NotComparable("parameters are sharded (DeepSpeed ZeRO)")
    compiled = sys.modules.get("torch._dynamo.compiled_autograd")
    if getattr(compiled, "compiled_autograd_enabled", False):
        raise NotComparable("compiled autograd does not call the hooks of individual steps")
    return own


def network_of(own: list[Any], networks: Iterable[Any], processes: int) -> Any:
    """Return the DistributedDataParallel module that has all these parameters and averages their
    gradients over all workers; None if there is only one worker and the worker uses no such module.

    Raises:
        NotComparable: several workers do not average all gradients over all workers.
    """
    wanted = {id(each) for each in own}
    for network in list(networks):
        if not wanted <= {id(each) for each in network.parameters()}:
            continue
        if network.process_group.size() != processes:
            raise NotComparable("DistributedDataParallel spans only a part of the world")
        if getattr(network, "mixed_precision", None) is not None:
            raise NotComparable("DistributedDataParallel with mixed_precision")
        if getattr(network, "parameters_to_ignore", None):
            raise NotComparable("DistributedDataParallel ignores some parameters")
        foreign = _foreign_hooks(network)
        if foreign:
            raise NotComparable("the script's communication hook %s" % foreign[0])
        return network
    if processes > 1:
        raise NotComparable("no DistributedDataParallel around the optimizer's parameters")
    return None


def _foreign_hooks(network: Any) -> list[str]:
    """Return the names of the script's communication hooks that may not average gradients; all
    hooks that torch provides average them.
    """
    hooks = [hook for hook, _ in getattr(network, "_comm_hooks", ())]
    names = [getattr(hook, "__qualname__", "?") for hook in hooks]
    return [name for name in names if name not in AVERAGING]
