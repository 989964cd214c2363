"""The agent that a person starts with ``brain-run``: ``run(config)``, without a scaler."""

import asyncio
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from brain.types.world import ReplicaEnd, ReplicaExit
from launcher.agent import addresses
from launcher.agent.job_step import step_question
from launcher.agent.membership import AgentMembership
from launcher.agent.terms import (
    FOUND_SECONDS,
    alone_seconds,
    fixed_desired_world,
    join_seconds,
    lease_seconds,
    terms_of,
)
from launcher.agent.worker_group.group import WorkerGroup
from launcher.command import slurm
from launcher.coordinator.brain import Reports, SuspendWhenWarned
from launcher.coordinator.continuity import Continuity
from launcher.coordinator.coordinator import Coordinator
from launcher.coordinator.leadership import EndpointLeadership, Leadership, SoleLeadership
from launcher.messages import digest
from launcher.values.config import LaunchConfig
from launcher.values.console import Discreet, say
from launcher.values.observation import WorldRules
from launcher.values.replica import JobPlace
from launcher.values.streams import write
from launcher.workers import events
from launcher.workers.collector import keep_collector, undelivered
from launcher.workers.processes.failures import failure_report, hand_on_error
from launcher.workers.processes.process import Guard, unignore

#: A world started by hand that has saved nothing may be restarted for a joiner while it is young.
_FREE_SECONDS = 30.0
#: A worker whose handler of Slurm's warning ends it has ended so long after it lost that handler.
_HANDLED_SECONDS = 2.0
#: Variables that a manager sets which may restart a job's processes elsewhere.
_MANAGERS = ("KUBERNETES_SERVICE_HOST", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")


def run(config: LaunchConfig) -> int:
    """Run an agent that a person started; return the workers' exit code.

    Raises:
        BadInput: something in ``config`` cannot be used on this machine.
    """
    if config.events:
        events.hostname()
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL and "SIGINT" not in config.signals:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # it ends the workers, too
    unignore(config.signals)  # workers of torchrun, which handles them, ignore none of them either
    guard = Guard()  # an agent that is killed leaves its directory to it
    scratch = Path(tempfile.mkdtemp(prefix="brain-run-"))
    guard.watch(scratch)
    try:
        code = asyncio.run(_by_hand(config, scratch))
        for name in config.signals:  # too late to change how the job ended
            signal.signal(signal.Signals[name], lambda *_: os._exit(code))
        return code
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        guard.done(scratch)
        guard.close()
        for name in config.signals:  # the interpreter would restore their default actions
            signal.signal(signal.Signals[name], signal.SIG_IGN)


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
    ended = await with_collector(membership, config)
    if continuity.denied.is_set():
        say(continuity.detail)
        return 1
    if config.step is not None and warned.is_set():
        _requeue(config.step, ended, coordinates=membership.coordinates)
        if ended.exit is ReplicaExit.LEFT:
            return 128 + slurm.WARNING
    if ended.exit is ReplicaExit.FAILED:
        report = failure_report(config.entrypoint.name, membership.exits)
        # The report is about this node's workers; the first failure may have been on another node.
        write(f"{report}\n" if report else "")
        say(ended.detail)
        try:
            hand_on_error(membership.exits, os.environ)
        except OSError as cannot:
            say(f"TORCHELASTIC_ERROR_FILE cannot be written, so it lacks the error: {cannot}")
    if ended.exit is ReplicaExit.LEFT and membership.departure.leaving is not None:
        return 128 + membership.departure.leaving
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

    ``scratch`` is a directory for this agent alone; ``rank`` is the requested GROUP_RANK. The job
    is suspended once ``warned`` is set. ``worker_group`` makes the object that runs the workers.

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


async def _listen(endpoint: str, membership: AgentMembership) -> bool:
    """Listen at the rendezvous endpoint; False if its address is another machine's, or taken."""
    host, _, port = endpoint.rpartition(":")
    try:
        await membership.listener.listen(host.strip("[]") or None, int(port))
    except (OSError, ValueError):
        return False
    return True


async def with_collector(membership: AgentMembership, config: LaunchConfig) -> ReplicaEnd:
    """Run an agent until it ends, and return its end. If ``config`` names the URL of Brain, also
    keep a collector running on the agent's machine.
    """
    if config.brain_url is None:  # nobody would be told
        return await membership.run()
    collecting = asyncio.create_task(keep_collector(config.home, Discreet()))
    try:
        return await membership.run()
    finally:
        collecting.cancel()
