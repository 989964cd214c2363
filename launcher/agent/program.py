"""The agent that a scaler starts: ``python -m launcher.agent --replica-dir DIRECTORY``."""

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from brain.errors import BrainError
from brain.types.places import probe_socket
from brain.types.world import ReplicaEnd, ReplicaExit
from launcher.agent.by_hand import with_collector
from launcher.agent.membership import AgentMembership
from launcher.agent.terms import (
    fixed_desired_world,
    last_desired_world,
    lease_seconds,
    terms_of,
)
from launcher.command.entrypoint import parse_command
from launcher.coordinator.brain import (
    Brain,
    DesiredByBrain,
    DesiredWorlds,
    FixedDesiredWorld,
    Reports,
    read_token,
    service_url,
)
from launcher.coordinator.continuity import Continuity
from launcher.coordinator.coordinator import Coordinator
from launcher.coordinator.leadership import (
    Leadership,
    LocalLeadership,
)
from launcher.coordinator.pod_leadership import PodLeadership
from launcher.coordinator.topology.asked import path_of
from launcher.messages import digest
from launcher.options import launch_config
from launcher.values.config import LaunchConfig
from launcher.values.console import say
from launcher.values.observation import WorldRules
from launcher.values.replica import JobPlace, ReplicaIntent, ReplicaPlace
from launcher.values.streams import drop_unwritten
from launcher.workers.processes.process import unignore

if TYPE_CHECKING:
    from brain.views import PodSeen

#: Exit code of an agent whose replica is run by another one already.
BUSY = 75
#: Under Brain a script that fails so often in one way before its first step is given up.
_BARREN_WORLDS = 3
#: Flags of a launcher inside a job document that the document itself decides.
_DECIDED = frozenset(
    {"nnodes", "nproc_per_node", "rdzv_backend", "rdzv_endpoint", "standalone", "master_port"}
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a replica's agent; return its exit code."""
    parser = argparse.ArgumentParser(prog="launcher.agent", description=__doc__)
    parser.add_argument("--replica-dir", required=True, type=Path, metavar="DIR")
    place = ReplicaPlace(parser.parse_args(argv).replica_dir.resolve())
    unignore(["SIGCHLD"])  # else the kernel discards how workers ended
    if not place.lock.take():
        say(f"another agent runs {place.directory}")
        return BUSY
    try:
        intent = place.intent()
        place.status(generation=intent.generation, address="", phase="starting")
        ended = asyncio.run(_replica(intent, place))
    except BrainError as unusable:
        say(str(unusable))
        ended = ReplicaEnd(exit=ReplicaExit.FAILED, exit_code=1, detail=str(unusable))
    try:
        if place.lock.stands():  # else another agent may use a new directory at this path
            place.end(ended)
    except OSError as full:
        say(f"exit.json cannot be written, so the scaler will count this replica as lost: {full}")
    drop_unwritten()
    return ended.status


def replica_config(intent: ReplicaIntent, place: ReplicaPlace) -> LaunchConfig:
    """Build a replica's configuration from ``intent.json``, which its scaler wrote, and the command
    in it.

    Raises:
        BadInput: the command cannot be used; the message names the missing part.
    """
    environment = dict(os.environ)
    directory = intent.directory or os.getcwd()
    entrypoint = parse_command(intent.command, environment, directory)
    options = {key: value for key, value in entrypoint.options.items() if key not in _DECIDED}
    options["checkpoint_signal"] = intent.checkpoint.signal
    config = launch_config(replace(entrypoint, options=options), environment, directory)
    grace = intent.checkpoint.grace_seconds
    return replace(
        config,
        processes=intent.processes,
        group=intent.role,
        nodes_min=intent.minimum,
        nodes_max=intent.minimum,
        unit=intent.unit,
        run_id=intent.job,
        job=intent.job,
        replica=intent.replica,
        node=intent.node,
        rdzv_backend="local",
        rdzv_endpoint="",
        max_restarts=intent.restart_limit,
        grace_seconds=config.grace_seconds if grace is None else grace,
        checkpoint=intent.checkpoint,
        memory_checkpoint=config.memory_checkpoint or intent.checkpoint.memory,
        accelerator=intent.accelerator or config.accelerator,
        brain_url=intent.brain_url,
        token_file=intent.token_file,
        home=intent.home,
        collector_socket=probe_socket(intent.home, os.getuid()),
        replica_directory=str(place.directory),
        batch_file=None if intent.brain_url is None else str(place.directory / "batch.json"),
        tunes_like_dlrover=bool(entrypoint.options.get("auto_tunning")),
        topology=path_of(intent.topology) or config.topology,
        logs=replace(config.logs, replica_log=None if intent.address else str(place.output)),
    )


async def _replica(intent: ReplicaIntent, place: ReplicaPlace) -> ReplicaEnd:
    config = replica_config(intent, place)
    job = JobPlace(place.directory.parent)
    asked = _brain(intent)
    fixed = fixed_desired_world(config, 0.0)
    token = digest(read_token(intent.token_file))
    seconds = lease_seconds(config)

    def evicted() -> str:
        return "" if place.lock.stands() else f"its directory {place.directory} is gone"

    continuity = Continuity(pod_question(intent), pause_seconds=seconds, say=say, evicted=evicted)

    async def leadership(mine: str) -> Leadership:
        return (
            LocalLeadership(job)
            if intent.place_file is None
            else PodLeadership(intent.place_file, mine)
        )

    def coordinate(agent: AgentMembership, leadership: Leadership) -> Coordinator:
        reports = Reports(job.directory / "reports", _brain(intent))
        rules = WorldRules(
            barren_worlds=_BARREN_WORLDS,
            spares=intent.spares,
            fixed_roles=intent.place_file is not None,
        )
        terms = terms_of(agent.config, address=agent.address, token_sha256=token, rules=rules)
        terms = replace(terms, linger_seconds=600.0, asks=continuity.asks)
        last = last_desired_world(fixed, agent.last)
        desired_worlds: DesiredWorlds = (
            FixedDesiredWorld(fixed)
            if asked is None
            else DesiredByBrain(asked, intent.job, job, last)
        )
        return Coordinator(
            terms,
            place=job,
            leadership=leadership,
            desired_worlds=desired_worlds,
            reports=reports,
            say=say,
            last=agent.last,
            witness=agent.witness,
            continuity=continuity,
        )

    def status(address: str, phase: str) -> None:
        try:
            place.status(
                generation=intent.generation,
                address=address,
                phase=phase,
                grace_seconds=config.grace_seconds,
            )
        except OSError as full:
            say(f"state.json cannot be written, so the scaler lacks this agent's state: {full}")

    membership = AgentMembership(
        config,
        token_sha256=token,
        host=intent.address or "127.0.0.1",
        port=intent.port,
        generation=intent.generation,
        rank=None,
        leadership=leadership,
        coordinate=coordinate,
        status=status,
        say=say,
        lease_seconds=seconds,
        continuity=continuity,
    )
    return await with_collector(membership, config)


def _brain(intent: ReplicaIntent) -> Brain | None:
    given = intent.brain_url
    if given is None:
        return None
    return Brain(lambda: service_url(intent.home, given), intent.token_file)


def pod_question(intent: ReplicaIntent) -> "Callable[[float], Awaitable[PodSeen]] | None":
    """Return a function that asks the cluster if the replica's pod still runs and was not deleted.

    Returns None if there is no pod or no Brain.
    """
    brain = None if intent.place_file is None else _brain(intent)
    if brain is None:
        return None

    async def ask(ran_at: float) -> "PodSeen":
        from brain import calls  # late, as the client

        return await brain.send(calls.pod(intent.job, intent.replica))

    return ask
