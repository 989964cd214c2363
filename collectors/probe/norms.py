"""Norms of gradients, and why those of a job cannot be compared."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Communication hooks after which every worker has the mean gradient, but for rounding.
AVERAGING = {"allreduce_hook", "fp16_compress_hook", "bf16_compress_hook"}


class Unavailable(Exception):
    """Why gradients of this job cannot be compared."""


class Odd(Unavailable):
    """Why those of one step cannot; unless all steps are alike it is of no interest."""


def foreign_hooks(network: Any) -> list[str]:
    """Communication hooks that a script registered with DistributedDataParallel and that may not
    average; builtin ones all do."""
    hooks = [hook for hook, _ in getattr(network, "_comm_hooks", ())]
    names = [getattr(hook, "__qualname__", "?") for hook in hooks]
    return [name for name in names if name not in AVERAGING]


def norm_of(torch: Any, gradient: Any) -> Any:
    """The norm of a gradient as a tensor where it lies, in single precision at least."""
    if gradient.layout is not torch.strided:
        raise Unavailable("sparse gradients")
    if gradient.is_cuda:
        if torch.cuda.is_current_stream_capturing():
            raise Unavailable("steps are captured in CUDA graphs")
    elif gradient.device.type != "cpu":
        raise Unavailable("gradients on a device of type %s" % gradient.device.type)
    half = gradient.dtype in (torch.float16, torch.bfloat16)
    return torch.linalg.vector_norm(gradient.detach(), dtype=torch.float32 if half else None)


def norms_of(torch: Any, gradients: list[Any]) -> list[Any]:
    """The norms of many gradients of full precision at once, if torch can."""
    together = getattr(torch, "_foreach_norm", None)
    full = (torch.float32, torch.float64)
    if together is None or not all(
        each.dtype in full and each.layout is torch.strided for each in gradients
    ):
        return [norm_of(torch, each) for each in gradients]
    with torch.no_grad():
        return list(together(gradients))


def squares_of(torch: Any, found: list[Any]) -> Any:
    """The sum of the squares of norms, which must lie on one device."""
    if len({each.device for each in found}) > 1:
        raise Unavailable("gradients on several devices")
    return torch.stack(found).double().square().sum()
