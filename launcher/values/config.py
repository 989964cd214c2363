"""The configuration of one agent, and the world that the agent should run.

This module contains only values. ``launcher.options`` builds a ``LaunchConfig`` from a command
line, ``agent.program`` completes one from a replica's intent, and ``rendezvous.settings`` builds
one from torchrun's parameters. The coordinator builds a ``WorldDocument``; ``launcher.workers``
reads both.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntFlag

from brain.types.grace import GRACE_SECONDS
from brain.types.job import Checkpoint
from brain.types.roles import WORKER
from brain.types.world import Cause, Member
from launcher.command.entrypoint import Entrypoint
from launcher.command.slurm import SlurmStep
from launcher.values.observation import Shape

#: Version of ``WorldDocument`` and of every message between agents.
VERSION = 1


class Std(IntFlag):
    """The streams of a worker, with their numbers in ``--redirects`` and ``--tee``."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Destinations of the workers' output; by default, as in torchrun, the console."""

    #: This run's own directory inside ``--log-dir``, made by ``output.run_directory``; None keeps
    #: no files.
    run_directory: str | None = None
    #: Local rank -> streams that go to files only; ``None`` as key stands for every other rank.
    redirects: Mapping[int | None, Std] = field(default_factory=dict)
    #: Local rank -> streams that go to files and, prefixed, to the console.
    tee: Mapping[int | None, Std] = field(default_factory=dict)
    #: Local ranks whose output reaches the console; empty for all.
    local_ranks: frozenset[int] = frozenset()
    #: Template with ``${role_name} ${rank} ${local_rank}``; None for ``[<role><local rank>]:``.
    prefix: str | None = None
    #: Lines that contain one of these are copied to ``filtered_stdout.log`` / ``…stderr.log``.
    stdout_filters: tuple[str, ...] = ()
    stderr_filters: tuple[str, ...] = ()
    #: Entry point in ``torchrun.logs_specs`` that says where files go instead; None: none.
    specs: str | None = None
    #: ``--log-dir`` as given, for ``specs``.
    directory: str | None = None
    #: File that gets every line, prefixed ``[<role><rank>]:``; a replica's ``output.log``.
    replica_log: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConfig:
    """The settings that an agent needs before its first world."""

    entrypoint: Entrypoint
    #: Worker processes of this agent.
    processes: int = 1
    #: Group of this replica, or ``worker``.
    group: str = WORKER
    #: Replicas that the job may have; without a Brain the world is formed inside these bounds.
    nodes_min: int = 1
    nodes_max: int = 1
    #: Replicas come and go in multiples of this.
    unit: int = 1
    #: Processes that the job asks for instead of replicas (``--world``); None if it asks for
    #: replicas.
    shape: Shape | None = None
    #: Ranks of a tensor-parallel group, and pipeline stages.
    parallel: tuple[int, int] = (1, 1)
    #: GROUP_RANK asked for (``--node-rank``); 0 asks for nothing but with static rendezvous.
    node_rank: int = 0
    #: Where this machine is, outermost first: zone, spine, rack, switch; empty: not known.
    topology: tuple[str, ...] = ()
    #: TORCHELASTIC_RUN_ID, and the job's id unless Brain gives another.
    run_id: str
    job: str
    #: Replica id within the job; never reused.
    replica: int = 0
    node: str = "localhost"
    role: str = "default"
    #: ``static`` or ``c10d`` as given, ``local`` where this machine's state directory decides.
    rdzv_backend: str = "local"
    #: ``host:port`` at which the coordinating agent listens; empty for this machine alone.
    rdzv_endpoint: str = ""
    #: ``--rdzv-conf`` as pairs.
    rdzv_conf: Mapping[str, str] = field(default_factory=dict)
    #: MASTER_ADDR and MASTER_PORT as given for static rendezvous; None if the coordinator chooses.
    master_addr: str | None = None
    master_port: int | None = None
    #: Address at which others reach this machine; None to find it.
    local_addr: str | None = None
    #: Worlds that may be lost to failures before the job is given up.
    max_restarts: int = 0
    #: Accepted for torchrun's sake; exits are events here, nothing polls.
    monitor_interval_seconds: float = 0.1
    #: Names of signals that end the workers first and then the agent.
    signals: tuple[str, ...] = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
    #: Seconds between asking a worker to end and ending it.
    grace_seconds: float = GRACE_SECONDS
    #: LOCAL_RANK 0 everywhere and one device visible to each (``--virtual-local-rank``).
    virtual_local_rank: bool = False
    logs: LogConfig = field(default_factory=LogConfig)
    #: The environment that workers inherit; the launcher adds its variables to a copy.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Directory in which workers run; absolute.
    directory: str
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    #: Short name of the accelerator for telemetry, ``cpu`` where there is none.
    accelerator: str = "cpu"
    #: Base URL of Brain; None without Brain, when the world is ``nodes_min`` to ``nodes_max``.
    brain_url: str | None = None
    token_file: str | None = None
    #: ``$BRAIN_HOME``; absolute.
    home: str
    #: ``$BRAIN_HOME/replicas/<job>/<id>``; None for agents started by hand.
    replica_directory: str | None = None
    #: Datagram socket of the collector; None to send no samples.
    collector_socket: str | None = None
    #: What is imported ahead of the workers: ``learned`` (torch, then what the script was seen to
    #: import), ``torch``, ``none``, or ``parked``: by each worker itself, started ahead.
    preload: str = "learned"
    #: Parked workers make their CUDA contexts ahead, too.
    park_cuda: bool = False
    #: False (``BRAIN_PROBE=0`` or ``--no-probe``) keeps all code of Brain out of the workers.
    probe: bool = True
    #: ``torch.save`` of unmodified scripts goes through shared memory (``ram_checkpoint``).
    memory_checkpoint: bool = False
    #: True to write memory to storage before the workers of a failed world restart.
    save_at_breakpoint: bool = False
    #: ``memory`` in BRAIN_WORKER; the agent fills it in once it has shared memory.
    memory: Mapping[str, object] | None = None
    #: CPUs that a worker may use, by local rank (``--numa-binding``); empty for all of the agent's.
    bindings: tuple[tuple[int, ...], ...] = ()
    #: 1 to check nodes before the first world; 2 to print the measurements, too.
    network_check: int = 0
    #: True to leave out nodes that the check finds slow as well, if the other nodes are enough.
    exclude_straggler: bool = False
    #: How many times the others' time makes a node slow.
    straggler_ratio: float = 1.15
    #: Seconds without a sign of life after which a world counts as standing still, at least; 0:
    #: nobody looks.
    hang_seconds: float = 300.0
    #: ``restart`` or ``report``; empty for restart under a scaler, report in a job started by hand.
    on_hang: str = ""
    #: File with the batch for scripts that ask; None if no batch is ever chosen.
    batch_file: str | None = None
    #: The script reads it as DLRover's ElasticDataLoader does (``--auto_tunning``).
    tunes_like_dlrover: bool = False
    #: Events of workers go to standard error as torchrun's JSON (``--event-log-handler=console``).
    events: bool = False
    #: The job step of Slurm of which this agent is a task; None without Slurm.
    step: SlurmStep | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldDocument:
    """A world, as its coordinator sends it to every agent; msgspec encodes it unchanged."""

    v: int = VERSION
    job: str
    #: Rises with every world of the job, across take-overs too.
    epoch: int
    #: Generation of the desired world that this world answers.
    generation: int
    cause: Cause
    #: Ordered by ``group_rank``, which counts from 0 without holes.
    members: tuple[Member, ...]
    master_addr: str
    master_port: int
    run_id: str
    #: host:port of the coordinating agent.
    coordinator: str
    #: Workers end themselves when nobody renewed the lease for so long; 0: no lease, since nobody
    #: could go on without them.
    lease_seconds: float = 3.0
    #: Workers whose lease ran out are held, and not ended: their coordinator can prove that nobody
    #: went on without them.
    holds: bool = False
    #: Worlds lost to failures so far (TORCHELASTIC_RESTART_COUNT), and how many may be.
    restart_count: int = 0
    max_restarts: int = 0
    #: True if all its workers are known to be able to change to another world in process.
    elastic: bool = False
    #: As ``WorldLedger.unchecked``: a world of this script stepped without the checkpoint that was
    #: kept for it.
    unchecked: bool = False

    @property
    def processes(self) -> int:
        """WORLD_SIZE: the sum of the members' processes."""
        return sum(member.processes for member in self.members)

    def first_rank(self, group_rank: int) -> int:
        """Return the RANK of a member's local rank 0: the number of processes of all earlier
        members.
        """
        return sum(m.processes for m in self.members if m.group_rank < group_rank)

    def member(self, group_rank: int) -> Member:
        """Return the member with this GROUP_RANK.

        Raises:
            KeyError: there is none.
        """
        for member in self.members:
            if member.group_rank == group_rank:
                return member
        raise KeyError(group_rank)


def on_loopback(address: str) -> bool:
    """True if a ``host:port`` address is on loopback, and so reached without a network.

    >>> on_loopback("127.0.0.1:9"), on_loopback("[::1]:9"), on_loopback("10.0.0.1:9")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(address.rpartition(":")[0].strip("[]")).is_loopback
    except ValueError:
        return False
