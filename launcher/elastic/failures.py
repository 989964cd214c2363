"""Recognizes exceptions that report a lost peer; any other exception comes from the script."""

import torch.distributed as dist

#: Errors of gloo, NCCL and the kernel for a connection that ended.
_SIGNS = (
    "gloo/transport",
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Socket closed",
    "NCCL",
    "ncclRemoteError",
    "ncclSystemError",
    "communicator was aborted",
)


def of_communication(error: BaseException) -> bool:
    """True if a lost peer may have caused the error.

    >>> of_communication(RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer"))
    True
    >>> of_communication(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    False
    """
    if not isinstance(error, RuntimeError):
        return False
    return isinstance(error, dist.DistError) or any(sign in str(error) for sign in _SIGNS)
