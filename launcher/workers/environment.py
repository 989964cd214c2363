"""The environment of a worker: torchrun's variables, and one variable of the launcher."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Template

from brain.errors import BadInput
from brain.types.roles import ranked, roles_in, tasks_of, tf_config
from launcher.values.config import LaunchConfig, WorldDocument
from launcher.workers.batch_file import batch_environment


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInjection:
    """Absolute paths that the launcher gives to one worker; None for a feature that is off."""

    #: Directory that holds nothing but our ``sitecustomize.py``.
    inject: str
    probe: str | None
    control: str
    #: Datagram socket of the agent.
    agent: str
    #: File for what the script imported; None where nobody asks.
    learn: str | None = None
    #: ``elastic`` in BRAIN_WORKER: where the agent listens for sessions; None: it does not.
    elastic: Mapping[str, object] | None = None
    #: Where imports of the script look first; None: nowhere but among the libraries.
    first: str | None = None
    #: What a prepared worker needs beside: ``gate``, ``since`` and ``checkpoints``.
    gate: Mapping[str, object] = field(default_factory=dict)


def worker_environment(
    config: LaunchConfig,
    world: WorldDocument,
    group_rank: int,
    local_rank: int,
    *,
    injection: WorkerInjection,
    error_file: str,
) -> dict[str, str]:
    """Return the complete environment of one worker.

    Raises:
        BadInput: ``--virtual-local-rank`` with fewer devices visible than workers.
    """
    base = {k: v for k, v in config.environment.items() if k != "BRAIN_WORKER"}
    ours = {
        **world_environment(world, group_rank, local_rank),
        "LOCAL_RANK": str(local_rank),
        "ROLE_NAME": role_name(config, world, group_rank),
        "TORCHELASTIC_RUN_ID": world.run_id,
        # Rank 0 keeps the store, so that it ends with its world.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": ",".join(config.signals),
        "TORCHELASTIC_ERROR_FILE": error_file,
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": base.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }
    if world.member(group_rank).processes > 1:
        ours["OMP_NUM_THREADS"] = base.get("OMP_NUM_THREADS", "1")
    if ranked(roles_in(world.members)):
        ours["TF_CONFIG"] = tensorflow_config(world, group_rank)
    ours |= batch_environment(config.batch_file, dlrover=config.tunes_like_dlrover)
    if config.virtual_local_rank:
        ours |= _only_device(base, local_rank)
    return base | ours | _injected(config, world, base, local_rank, injection)


def role_name(config: LaunchConfig, world: WorldDocument, group_rank: int) -> str:
    """Return the role of a member if the job has roles, else the ``--role`` of its agent."""
    roles = ranked(roles_in(world.members))
    return world.member(group_rank).role if roles else config.role


def tensorflow_config(world: WorldDocument, group_rank: int) -> str:
    """Return ``TF_CONFIG`` of a member; each process listens at the port that its agent found
    free.
    """
    tasks = tasks_of(world.members)
    hosts = (member.address.rpartition(":")[0] for member in world.members)
    addresses = (f"{host}:{m.port}" for host, m in zip(hosts, world.members, strict=True))
    return tf_config(dict(zip(tasks, addresses, strict=True)), tasks[group_rank])


def world_environment(world: WorldDocument, group_rank: int, local_rank: int) -> dict[str, str]:
    """Return the part of a worker's environment that depends on the world."""
    rank = str(world.first_rank(group_rank) + local_rank)
    return {
        "RANK": rank,
        "WORLD_SIZE": str(world.processes),
        "LOCAL_WORLD_SIZE": str(world.member(group_rank).processes),
        "GROUP_RANK": str(group_rank),
        "GROUP_WORLD_SIZE": str(len(world.members)),
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": str(world.processes),
        "MASTER_ADDR": world.master_addr,
        "MASTER_PORT": str(world.master_port),
        "TORCHELASTIC_RESTART_COUNT": str(world.restart_count),
        "TORCHELASTIC_MAX_RESTARTS": str(world.max_restarts),
    }


def world_place(world: WorldDocument) -> dict[str, object]:
    """Return the part of BRAIN_WORKER that depends on the world."""
    return {
        "epoch": world.epoch,
        "generation": world.generation,
        "nodes": len({member.node for member in world.members}),
        "replicas": len(world.members),
    }


def worker_arguments(config: LaunchConfig, local_rank: int) -> list[str]:
    """Return the command of one worker, in which ``${local_rank}`` is replaced as in torchrun."""
    program, *rest = config.entrypoint.argv
    return [program, *(Template(each).safe_substitute(local_rank=local_rank) for each in rest)]


def _only_device(base: Mapping[str, str], local_rank: int) -> dict[str, str]:
    visible = base.get("CUDA_VISIBLE_DEVICES")
    devices = visible.split(",") if visible is not None else None
    if devices is not None and local_rank >= len(devices):
        raise BadInput(
            f"--virtual-local-rank: CUDA_VISIBLE_DEVICES={visible} has no device for local rank "
            f"{local_rank}; lower --nproc-per-node",
            field="virtual_local_rank",
        )
    device = str(local_rank) if devices is None else devices[local_rank].strip()
    return {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": device}


def _injected(
    config: LaunchConfig,
    world: WorldDocument,
    base: Mapping[str, str],
    local_rank: int,
    injection: WorkerInjection,
) -> dict[str, str]:
    before = base.get("PYTHONPATH")
    message = {
        "v": 1,
        "job": world.job,
        "replica": config.replica,
        **world_place(world),
        # LOCAL_RANK is 0 in all workers with --virtual-local-rank.
        "local_rank": local_rank,
        "accelerator": config.accelerator,
        "collector": config.collector_socket,
        "agent": injection.agent,
        "control": injection.control,
        "hold": world.holds,
        "checkpoint": config.checkpoint.path,
        "probe": injection.probe,
        "learn": injection.learn,
        "memory": config.memory,
        "elastic": injection.elastic,
        "first": injection.first,
        # What children of the worker shall find again.
        "pythonpath": before,
    }
    message |= injection.gate
    path = injection.inject if not before else injection.inject + os.pathsep + before
    return {"BRAIN_WORKER": json.dumps(message), "PYTHONPATH": path}
