"""The agent as a program: ``run(config)`` for ``brain-run``, ``--replica-dir D`` for a scaler."""

import argparse
import asyncio
import contextlib
import math
import os
import shutil
import socket
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from brain.errors import BrainError, Unavailable
from brain.types.places import probe_socket
from brain.types.roles import WORKER, is_group
from brain.types.world import ReplicaEnd, ReplicaExit
from launcher.agent import addresses
from launcher.agent.membership import AgentMembership
from launcher.agent.terms import (
    FOUND_SECONDS,
    alone_seconds,
    fixed_desired_world,
    join_seconds,
    last_desired_world,
    lease_seconds,
    terms_of,
)
from launcher.agent.worker_group.group import WorkerGroup
from launcher.command import slurm
from launcher.command.entrypoint import parse_command
from launcher.coordinator.brain import (
    Brain,
    DesiredByBrain,
    DesiredWorlds,
    FixedDesiredWorld,
    Reports,
    SuspendWhenWarned,
    read_token,
    service_url,
)
from launcher.coordinator.continuity import Continuity
from launcher.coordinator.coordinator import Coordinator
from launcher.coordinator.leadership import (
    EndpointLeadership,
    Leadership,
    LocalLeadership,
    SoleLeadership,
)
from launcher.coordinator.pod_leadership import PodLeadership
from launcher.coordinator.topology.asked import path_of
from launcher.messages import digest
from launcher.options import launch_config
from launcher.values.config import LaunchConfig
from launcher.values.console import Discreet, say, write
from launcher.values.observation import WorldRules
from launcher.values.replica import JobPlace, ReplicaIntent, ReplicaPlace
from launcher.workers import events
from launcher.workers.collector import keep_collector, undelivered
from launcher.workers.processes.failures import failure_report, hand_on_error
from launcher.workers.processes.process import Guard

if TYPE_CHECKING:
    from brain.views import PodSeen

#: Exit code of an agent whose replica is run by another one already.
BUSY = 75
#: A world started by hand that has saved nothing may be restarted for a joiner while it is young.
_FREE_SECONDS = 30.0
#: Under Brain a script that fails so often in one way before its first step is given up.
_BARREN_WORLDS = 3
#: A worker whose handler of Slurm's warning ends it has ended so long after it lost that handler.
_HANDLED_SECONDS = 2.0
#: Variables that a manager sets which may restart a job's processes elsewhere.
_MANAGERS = ("KUBERNETES_SERVICE_HOST", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
#: Flags of a launcher inside a job document that the document itself decides.
_DECIDED = frozenset(
    {"nnodes", "nproc_per_node", "rdzv_backend", "rdzv_endpoint", "standalone", "master_port"}
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a replica's agent; return its exit code."""
    parser = argparse.ArgumentParser(prog="launcher.agent", description=__doc__)
    parser.add_argument("--replica-dir", required=True, type=Path, metavar="DIR")
    place = ReplicaPlace(parser.parse_args(argv).replica_dir.resolve())
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
        place.end(ended)
    except OSError as full:
        say(f"exit.json cannot be written, so the scaler will count this replica as lost: {full}")
    return ended.status


def run(config: LaunchConfig) -> int:
    """Run an agent that a person started; return the workers' exit code.

    Raises:
        BadInput: something in ``config`` cannot be used on this machine.
    """
    if config.events:
        events.hostname()
    guard = Guard()  # an agent that is killed leaves its directory to it
    scratch = Path(tempfile.mkdtemp(prefix="brain-run-"))
    guard.watch(scratch)
    try:
        return asyncio.run(_by_hand(config, scratch))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        guard.done(scratch)
        guard.close()


def replica_config(intent: ReplicaIntent, place: ReplicaPlace) -> LaunchConfig:
    """Build the configuration of a replica from a scaler's intent and the command inside it.

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
        group=intent.role if is_group(intent.role) else WORKER,
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
    continuity = Continuity(pod_question(intent), pause_seconds=seconds, say=say)

    async def leadership(mine: str) -> Leadership:
        return (
            LocalLeadership(job)
            if intent.place_file is None
            else PodLeadership(intent.place_file, mine)
        )

    def coordinate(agent: AgentMembership, leadership: Leadership) -> Coordinator:
        reports = Reports(job.directory / "reports", _brain(intent))
        rules = WorldRules(barren_worlds=_BARREN_WORLDS, spares=intent.spares)
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
            say(f"state.json cannot be written: {full}")

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
    return await _with_collector(membership, config)


def _brain(intent: ReplicaIntent) -> Brain | None:
    given = intent.brain_url
    if given is None:
        return None
    return Brain(lambda: service_url(intent.home, given), intent.token_file)


def pod_question(intent: ReplicaIntent) -> "Callable[[float], Awaitable[PodSeen]] | None":
    """Return the function that asks the cluster if the replica's pod stays; None without a pod or
    without Brain.
    """
    brain = None if intent.place_file is None else _brain(intent)
    if brain is None:
        return None

    async def ask(ran_at: float) -> "PodSeen":
        from brain import calls  # late, as the client

        return await brain.send(calls.pod(intent.job, intent.replica))

    return ask


async def step_question(config: LaunchConfig) -> "Callable[[float], Awaitable[PodSeen]] | None":
    """Return the question to Slurm if the job step stays; None if the step does not have all agents
    of the job, or Slurm cannot be asked from here.
    """
    step = config.step
    if step is None or not 1 < config.nodes_max <= step.tasks:
        return None
    with contextlib.suppress(Unavailable):
        if not await slurm.why_over(step, math.inf):

            async def ask(ran_at: float) -> "PodSeen":
                from brain.views import PodSeen  # late: few agents are ever paused

                why = await slurm.why_over(step, ran_at)
                return PodSeen(stays=not why, detail=why)

            return ask
    return None


async def _by_hand(config: LaunchConfig, scratch: Path) -> int:
    if config.brain_url and (why := undelivered(config.home, config.job, config.brain_url)):
        say(why)
    static = config.rdzv_backend == "static" and config.nodes_max > 1
    rank = config.node_rank if static or config.node_rank else None
    rules = WorldRules(
        free_seconds=_FREE_SECONDS,
        last_waits=False,
        alone_seconds=alone_seconds(config),
        join_seconds=join_seconds(config),
        shape=config.shape,
        spares=True,
    )
    warned = asyncio.Event()
    ask = await step_question(config)
    continuity = Continuity(ask, pause_seconds=lease_seconds(config), say=say)
    membership = by_hand(
        config,
        scratch,
        rank=rank,
        rules=rules,
        say=Discreet(),
        warned=warned,
        continuity=continuity,
    )
    if config.step is not None and slurm.WARNING.name not in config.signals:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(slurm.WARNING, _warn, membership, warned)
    ended = await _with_collector(membership, config)
    if continuity.denied.is_set():
        say(continuity.detail)
        return 1
    if config.step is not None and warned.is_set():
        _requeue(config.step, ended, coordinates=membership.coordinates)
        if ended.exit is ReplicaExit.LEFT:
            return 128 + slurm.WARNING
    if ended.exit is ReplicaExit.FAILED:
        report = failure_report(config.entrypoint.name, membership.exits)
        # The report is of this node's workers; who failed first may have been another's.
        write(f"{report}\n" if report else "")
        say(ended.detail)
        try:
            hand_on_error(membership.exits, os.environ)
        except OSError as cannot:  # who started us reads less, the exit code is the same
            say(f"TORCHELASTIC_ERROR_FILE cannot be written: {cannot}")
    if ended.exit is ReplicaExit.LEFT and membership.leaving is not None:
        return 128 + membership.leaving
    return ended.status


def _warn(membership: AgentMembership, warned: asyncio.Event) -> None:
    """Act on Slurm's warning before the time limit. Slurm signals every process of a step, so a
    script with a handler acts itself; any other job is suspended at its next checkpoint.
    """

    def suspend() -> None:
        if not membership.handles(slurm.WARNING) and not warned.is_set():
            warned.set()
            say(f"{slurm.WARNING.name}: the job is suspended at its next checkpoint")

    if membership.handles(slurm.WARNING):
        say(f"{slurm.WARNING.name} is left to the script, which handles it")
    else:
        asyncio.get_running_loop().call_later(_HANDLED_SECONDS, suspend)


def _requeue(step: slurm.SlurmStep, ended: ReplicaEnd, *, coordinates: bool) -> None:
    """Have Slurm start a suspended job again; the agent that coordinates does so, once."""
    if ended.exit is not ReplicaExit.LEFT or not coordinates:
        return
    why = slurm.requeue(step)
    if why:
        say(f"the job is suspended and not requeued: {why}; submit it again to go on")
    else:
        say(f"the job is suspended at its checkpoint, and Slurm starts job {step.job} again")


def by_hand(
    config: LaunchConfig,
    scratch: Path,
    *,
    rank: int | None,
    rules: WorldRules,
    say: Callable[[str], None],
    warned: asyncio.Event | None = None,
    continuity: Continuity | None = None,
    worker_group: Callable[..., WorkerGroup] = WorkerGroup,
) -> AgentMembership:
    """Build the ``AgentMembership`` of an agent that no scaler started; the first such agent
    coordinates.

    ``scratch`` is a directory for this agent alone; ``rank`` is the requested GROUP_RANK. If
    ``warned`` is set, the job is suspended. ``worker_group`` makes the object that runs the
    workers.

    Raises:
        BadInput: the endpoint cannot be reached from this machine.
    """
    host = addresses.host(config.local_addr, config.rdzv_endpoint)
    desired = fixed_desired_world(config, FOUND_SECONDS)
    config = replace(config, node=socket.gethostname(), replica=-1)
    token = digest(config.run_id)
    place = JobPlace(scratch)
    alone = config.nodes_max == 1 or not config.rdzv_endpoint

    async def leadership(mine: str) -> Leadership:
        if alone:
            return SoleLeadership()
        bound = await _listen(config.rdzv_endpoint, membership)
        return EndpointLeadership(config.rdzv_endpoint, mine, bound=bound)

    def coordinate(agent: AgentMembership, leadership: Leadership) -> Coordinator:
        terms = terms_of(agent.config, address=agent.address, token_sha256=token, rules=rules)
        terms = replace(
            terms,
            replaceable=not alone,
            by_hand=not any(map(os.environ.get, _MANAGERS)),
            asks=continuity is not None and continuity.asks,
            master_addr=config.master_addr if config.nodes_max == 1 else None,
            master_port=config.master_port if config.nodes_max == 1 else None,
        )
        return Coordinator(
            terms,
            place=place,
            leadership=leadership,
            desired_worlds=SuspendWhenWarned(desired, warned or asyncio.Event()),
            reports=Reports(scratch / "reports", None),
            say=say,
            last=agent.last,
            witness=agent.witness,
            continuity=continuity,
        )

    membership = AgentMembership(
        config,
        token_sha256=token,
        host=host,
        generation=0,
        rank=rank,
        leadership=leadership,
        coordinate=coordinate,
        status=lambda address, phase: None,
        say=say,
        join_seconds=join_seconds(config),
        lease_seconds=lease_seconds(config),
        continuity=continuity,
        worker_group=worker_group,
    )
    return membership


async def _with_collector(membership: AgentMembership, config: LaunchConfig) -> ReplicaEnd:
    if config.brain_url is None:  # nobody would be told
        return await membership.run()
    collecting = asyncio.create_task(keep_collector(config.home, Discreet()))
    try:
        return await membership.run()
    finally:
        collecting.cancel()


async def _listen(endpoint: str, membership: AgentMembership) -> bool:
    """Listen at the rendezvous endpoint; False if its address is another machine's, or taken."""
    host, _, port = endpoint.rpartition(":")
    try:
        await membership.listener.listen(host.strip("[]") or None, int(port))
    except (OSError, ValueError):
        return False
    return True
