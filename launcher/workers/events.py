"""``--event-log-handler=console``: the workers' events, in the JSON that torchrun prints.

Events have the shape of ``torch.distributed.elastic.events``; the start and end of a process are
reported as they happen.
"""

import functools
import json
import socket
from collections.abc import Sequence
from typing import Any

from launcher.values.config import LaunchConfig, WorldDocument
from launcher.values.streams import write
from launcher.values.workers import WorkerExit


@functools.cache
def hostname() -> str:
    """Return this machine's full name.

    The first call may wait several seconds for a name server, so call the function before the event
    loop starts.
    """
    return socket.getfqdn()


def tell_started(
    config: LaunchConfig, world: WorldDocument, group_rank: int, pids: Sequence[int]
) -> None:
    """Write the event of each worker that was started; ``pids`` are in order of local rank."""
    for local_rank, pid in enumerate(pids):
        worker = _worker(world, group_rank, local_rank, pid, None)
        _tell(_event(config, world, group_rank, "START", worker))


def tell_ended(
    config: LaunchConfig, world: WorldDocument, group_rank: int, exit: WorkerExit
) -> None:
    """Write the event of a worker that ended."""
    state = "TERMINATED" if exit.stopped else "FAILED" if exit.code else "SUCCEEDED"
    worker = _worker(world, group_rank, exit.local_rank, exit.pid, exit.code)
    raw = exit.error.decode(errors="replace") or None if state == "FAILED" else None
    _tell(_event(config, world, group_rank, state, worker, raw_error=raw))


def _tell(event: dict[str, Any]) -> None:
    """Write one line to standard error in one piece."""
    write(json.dumps(event) + "\n")


def _worker(
    world: WorldDocument, group_rank: int, local_rank: int, pid: int, code: int | None
) -> dict[str, Any]:
    rank = world.first_rank(group_rank) + local_rank
    return {
        "source": "WORKER",
        "rank": rank,
        "pid": pid,
        "metadata": {
            "local_rank": [local_rank],
            "role_rank": [rank],
            "role_world_size": [world.processes],
            "exit_code": [code],
            "worker_pid": [None if code is None else pid],
        },
    }


def _event(
    config: LaunchConfig,
    world: WorldDocument,
    group_rank: int,
    state: str,
    worker: dict[str, Any],
    raw_error: str | None = None,
) -> dict[str, Any]:
    told = {"group_world_size": len(world.members), "entry_point": config.entrypoint.argv[0]}
    pid = worker.get("pid")
    return {
        "name": f"torchelastic.worker.status.{state}",
        "source": worker["source"],
        "timestamp": 0,
        "metadata": {
            "run_id": world.run_id,
            "global_rank": worker.get("rank"),
            "group_rank": group_rank,
            "worker_id": None if pid is None else str(pid),
            "role": config.role,
            "hostname": hostname(),
            "state": state,
            "total_run_time": 0,
            "rdzv_backend": config.rdzv_backend,
            "raw_error": raw_error,
            "metadata": json.dumps(told | worker.get("metadata", {})),
            "agent_restarts": world.restart_count,
            "duration_ms": None,
        },
    }
