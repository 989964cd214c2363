"""Checks if this worker is connected to another worker; independent copies of a program are never
connected.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Environment variables with the size of a world that another launcher made.
LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "HOROVOD_SIZE")


def met() -> bool:
    """True if a library in this process is connected to another worker.

    The check imports nothing, because only imported libraries can connect workers, and uses no
    network.
    """
    return _launched() or _grouped() or _divided() or _of_mpi() or _of_horovod()


def _launched() -> bool:
    sizes = (os.environ.get(name, "") for name in LAUNCHERS)
    return any(size.isdigit() and int(size) > 1 for size in sizes)


def _grouped() -> bool:
    """True if torch has a process group of several ranks, or an RPC agent."""
    dist: Any = sys.modules.get("torch.distributed")
    initialized = getattr(dist, "is_initialized", None)
    if initialized is not None and initialized() and dist.get_world_size() > 1:
        return True
    rpc: Any = sys.modules.get("torch.distributed.rpc.api")
    connected = getattr(rpc, "_is_current_rpc_agent_set", None)
    return bool(connected is not None and connected())


def _divided() -> bool:
    """True if the script uses ``launcher.data``, whose shards are divided among workers."""
    client: Any = getattr(sys.modules.get("launcher.data.client"), "client", None)
    return client is not None and client.cache_info().currsize > 0


def _of_mpi() -> bool:
    mpi: Any = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized():
        return False
    return int(mpi.COMM_WORLD.Get_size()) > 1


def _of_horovod() -> bool:
    for name in ("horovod.torch", "horovod.tensorflow"):
        horovod: Any = sys.modules.get(name)
        if horovod is not None and horovod.is_initialized() and horovod.size() > 1:
            return True
    return False
