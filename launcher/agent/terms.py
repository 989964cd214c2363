"""Derives a coordinator's rules, desired world and time limits from a launch configuration."""

import math
from dataclasses import replace
from pathlib import Path

from brain.errors import BadInput
from brain.types.job import Checkpoint, Intent, JobId
from brain.types.roles import roles_in
from brain.types.world import DesiredWorld
from launcher.agent import addresses
from launcher.coordinator.world.terms import CoordinatorTerms
from launcher.values.config import LaunchConfig, WorldDocument
from launcher.values.console import say
from launcher.values.hang.terms import hang_terms
from launcher.values.network_check.terms import CheckTerms, CheckWork
from launcher.values.observation import WorldRules

#: Seconds in which one that coordinates the job already tells whoever listens at its endpoint.
FOUND_SECONDS = 0.6
#: The service's default of ``patience_seconds``.
_PATIENCE_SECONDS = 120.0


def terms_of(
    config: LaunchConfig, *, address: str, token_sha256: str, rules: WorldRules
) -> CoordinatorTerms:
    """Build the terms of the job for the agent that coordinates at ``address``."""
    return CoordinatorTerms(
        job=config.job,
        run_id=config.run_id,
        token_sha256=token_sha256,
        address=address,
        node=config.node,
        lease_seconds=lease_seconds(config),
        program=config.entrypoint.name,
        grace_seconds=config.grace_seconds,
        declared=replace(config.checkpoint, memory=False, grace_seconds=None) != Checkpoint(),
        checkpoint=_declared(config),
        blind=not (config.probe and config.entrypoint.python),
        check=_check_terms(config),
        hang=hang_terms(config, say),
        rules=replace(
            rules,
            signal_seconds=config.grace_seconds if config.checkpoint.signal else None,
            tensor=config.parallel[0],
            pipeline=config.parallel[1],
        ),
    )


def _declared(config: LaunchConfig) -> str | None:
    path = config.checkpoint.path
    return None if path is None else str(Path(config.directory, path))


def fixed_desired_world(config: LaunchConfig, patience_seconds: float) -> DesiredWorld:
    """Return ``--nnodes`` as a desired world, with the largest number of nodes that it allows.

    A job with ``--world`` gets replicas of one process each.
    """
    shape = config.shape
    return DesiredWorld(
        job=JobId(config.job),
        generation=0,
        version=1,
        intent=Intent.RUN,
        replicas=config.nodes_max if shape is None else shape.processes,
        processes_per_replica=config.processes if shape is None else 1,
        unit=config.unit,
        minimum=config.nodes_min if shape is None else shape.least,
        patience_seconds=patience_seconds,
        restart_limit=config.max_restarts,
    )


def last_desired_world(fixed: DesiredWorld, last: WorldDocument | None) -> DesiredWorld | None:
    """Return a desired world with the size of the last world, for a coordinator that has heard
    nothing from Brain; None if there was no world.

    ``fixed`` is the job's own desired world. With the result, a coordinator waits for missing
    replicas as long as Brain does by default.
    """
    if last is None:
        return None
    return replace(
        fixed,
        generation=last.generation,
        replicas=len(last.members),
        roles=roles_in(last.members),
        patience_seconds=_PATIENCE_SECONDS,
    )


def join_seconds(config: LaunchConfig) -> float:
    """Return ``--rdzv-conf join_timeout=`` in seconds; if it is not given, torchrun's default."""
    return _rendezvous(config, "join_timeout", 600.0)


def lease_seconds(config: LaunchConfig) -> float:
    """Return the seconds that an agent may be silent.

    This is the interval of keep-alives times the allowed number of missed ones, both from
    ``--rdzv-conf``. If only the interval is given, torchrun's default of three applies.

    The result is at least 1.5 s, the time of three heartbeats, which come twice a second whatever
    ``--rdzv-conf`` sets. With a shorter lease, each short delay would look like a dead network.
    """
    attempts = _rendezvous(config, "keep_alive_max_attempt", 3.0)
    return max(1.5, attempts * _rendezvous(config, "keep_alive_interval", 1.0))


def alone_seconds(config: LaunchConfig) -> float:
    """Return the seconds that an agent, restarted at the endpoint, waits before it forms a world.

    In this time a world that lost its coordinator can find the agent. The other agents of that
    world wait as long as a lease, to be sure that the coordinator has ended. The result is 0 s if
    there are too few agents for two worlds, or on loopback, where the other agents know
    immediately.
    """
    if not config.rdzv_endpoint or 2 * config.nodes_min > config.nodes_max:
        return 0.0
    near = addresses.towards(config.rdzv_endpoint).startswith(("127.", "::1"))
    return 0.0 if near else lease_seconds(config) + 2 * FOUND_SECONDS


def _check_terms(config: LaunchConfig) -> CheckTerms | None:
    said = config.rdzv_conf
    if not config.network_check:
        return None
    return CheckTerms(
        print_all=config.network_check > 1,
        exclude_stragglers=config.exclude_straggler,
        ratio=config.straggler_ratio,
        seconds=_rendezvous(config, "check_timeout", 120.0),
        work=CheckWork(
            edge=int(_rendezvous(config, "check_edge", 384.0)) if "check_edge" in said else 0,
            mebibytes=int(_rendezvous(config, "check_mebibytes", CheckWork().mebibytes)),
            repeats=int(_rendezvous(config, "check_repeats", CheckWork().repeats)),
        ),
        memory=Path(config.home) / "network_check.json",
        tell=say,
    )


def _rendezvous(config: LaunchConfig, name: str, default: float) -> float:
    said = config.rdzv_conf.get(name, str(default))
    try:
        value = float(said)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise BadInput(
            f"--rdzv-conf: {name}={said} is not a number above 0; give {default:g}, for example",
            field="rdzv_conf",
        )
    return value
