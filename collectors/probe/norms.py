"""Computes norms of gradients on the device of the gradients, without waiting for the results."""

from __future__ import annotations

from .comparable import NotComparable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def norm_of(torch: Any, gradient: Any) -> Any:
    """Return the norm of a gradient as a tensor on its device, in single precision at least.

    Raises:
        NotComparable: the gradient is sparse or on an unsupported device, or steps are captured in
            CUDA graphs.
    """
    if gradient.layout is not torch.strided:
        raise NotComparable("sparse gradients")
    if gradient.is_cuda:
        if torch.cuda.is_current_stream_capturing():
            raise NotComparable("steps are captured in CUDA graphs")
    elif gradient.device.type != "cpu":
        raise NotComparable("gradients on a device of type %s" % gradient.device.type)
    half = gradient.dtype in (torch.float16, torch.bfloat16)
    return torch.linalg.vector_norm(gradient.detach(), dtype=torch.float32 if half else None)


def norms_of(torch: Any, gradients: list[Any]) -> list[Any]:
    """Return the norms of many full-precision gradients in one call, if torch supports this."""
    together = getattr(torch, "_foreach_norm", None)
    full = (torch.float32, torch.float64)
    if together is None or not all(
        each.dtype in full and each.layout is torch.strided for each in gradients
    ):
        return [norm_of(torch, each) for each in gradients]
    with torch.no_grad():
        return list(together(gradients))


def squares_of(torch: Any, found: list[Any]) -> Any:
    """Return the sum of the squares of norms, all of which must be on one device.

    Raises:
        NotComparable: the norms are on several devices.
    """
    if len({each.device for each in found}) > 1:
        raise NotComparable("gradients on several devices")
    return torch.stack(found).double().square().sum()
