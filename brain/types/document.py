"""The document that a person writes to have something trained, and what is refused of it."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from brain.errors import BadInput, ImpossibleBounds
from brain.types.allocation import Allocation, Bounds
from brain.types.grace import GRACE_SECONDS, MOST_SECONDS
from brain.types.resources import Resources
from brain.types.roles import RoleSize, check_resources, check_roles, ordered, others

#: Names stand in URLs, file names and object names of clusters.
NAME = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"

#: By these a command may say its own grace.
_OWN_GRACE = frozenset(
    {"--shutdown-timeout", "--shutdown_timeout", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"}
)

#: What a replica reserves of a document that says nothing of it.
UNSAID = Resources(cpu_millis=1000)

#: More is a mistake: every size that a job may have is looked at in every turn.
MOST_REPLICAS = 16_384


class OptimizeMode(StrEnum):
    """Who may propose, and over what."""

    MANUAL = "manual"
    SINGLE_JOB = "single-job"
    CLUSTER = "cluster"


class PolicyMode(StrEnum):
    """Who approves."""

    OFF = "off"
    SHADOW = "shadow"
    APPROVE = "approve"
    AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What the owner says of the script's checkpoints; the probe finds most by itself."""

    #: File or directory; relative to the job's directory.
    path: str | None = None
    #: Interval as a person writes it: ``90 s``, ``5 m``, ``200 steps``.
    every: str | None = None
    #: Signal upon which the script saves and exits, ``SIGUSR1`` for example.
    signal: str | None = None
    #: ``torch.save`` returns once the file is in memory; storage follows.
    memory: bool = False
    #: Seconds that the script has to save and end once it gets SIGTERM or ``signal``. None: what
    #: ``--shutdown-timeout`` of a launcher in the command says, else 30.
    grace_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Fixed dimensions of a 3D-parallel job; data parallelism is what scales."""

    tensor: int = 1
    pipeline: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchBounds:
    """Bounds of the batch, in examples."""

    #: Examples per optimizer step over all workers, where the script keeps it fixed.
    global_size: int | None = None
    #: Largest global batch that training bears; with it goodput may choose one, once the noise of
    #: gradients is measured.
    global_max: int | None = None
    local_min: int | None = None
    local_max: int | None = None
    #: The script takes its batch from the file that BRAIN_BATCH_FILE names, so Brain may choose it;
    #: ``--auto_tunning`` in the command says the same.
    tune: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most that a run may use, its restarts included; Brain takes no size that would use more.

    A replica counts its GPUs, or its cores where it reserves none.
    """

    accelerator_hours: float | None = None
    #: Money, at the installation's ``accelerator_prices``.
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """How much failing a job may do."""

    #: Worlds lost to failures (not to plans) before the job is Failed.
    limit: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalPolicy:
    """Who approves the plans of a job."""

    #: None: the service's default.
    mode: PolicyMode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A value of the environment that stays where it is: exactly one field is set."""

    #: File in the job's directory, where a relative path starts.
    from_file: str | None = None
    #: Key of a cluster's Secret, as ``secret/key``.
    from_secret: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDocument:
    """What a person writes to have something trained (YAML or JSON, camelCase keys)."""

    name: str
    command: tuple[str, ...] = ()
    image: str | None = None
    #: Of the script's text, by which jobs that run the same one are known; ``brain submit`` fills
    #: it in.
    script_hash: str | None = None
    project: str = "default"
    #: Where the command runs; the submitter's directory when sent by the command line.
    directory: str | None = None
    replicas: Bounds = Bounds()
    #: Replicas are meant to do work of their own: whether they meet is not judged, and their
    #: examples add up.
    independent: bool = False
    processes_per_replica: int = 1
    #: Of its replicas, those that are no workers: ``ps``, ``chief``, ``evaluator``. Each process is
    #: told all others by TF_CONFIG.
    roles: Mapping[str, RoleSize] = field(default_factory=dict)
    #: Reserved by each replica.
    resources: Resources = UNSAID
    accelerator: str | None = None
    parallelism: Parallelism = Parallelism()
    batch: BatchBounds = BatchBounds()
    checkpoint: Checkpoint = Checkpoint()
    epochs: int | None = None
    steps: int | None = None
    #: Both need the end to be declared (``steps``): nobody else knows what is left to pay for.
    budget: Budget = Budget()
    #: Brain takes no size that would end later (at 80 %).
    deadline: datetime | None = None
    restarts: Restarts = Restarts()
    priority: int = 0
    #: Whether it may be suspended for one of higher priority that waits to start; it queues again
    #: at once, and goes on from its checkpoint.
    preemptible: bool = False
    optimize_mode: OptimizeMode = OptimizeMode.SINGLE_JOB
    policy: ApprovalPolicy = ApprovalPolicy()
    #: Write-only: answers show the names.
    environment: Mapping[str, str | Secret] = field(default_factory=dict)

    @property
    def allocation(self) -> Allocation:
        """The size of generation 0."""
        return self.sized(self.replicas.first)

    @property
    def tunes(self) -> bool:
        """True if the script takes its batch from us. Data-parallel ones can."""
        whole = self.parallelism == Parallelism()
        # Words of a command may stand in one text behind a shell's -c.
        flags = {flag for word in self.command for flag in word.split()}
        return whole and (self.batch.tune or "--auto_tunning" in flags)

    @property
    def grace_seconds(self) -> float | None:
        """Seconds that the script has to save and end once it is asked to; None: only the launcher
        in the command knows."""
        said = self.checkpoint.grace_seconds
        flags = {flag.partition("=")[0] for word in self.command for flag in word.split()}
        if said is not None or flags & _OWN_GRACE or _OWN_GRACE & self.environment.keys():
            return said
        return GRACE_SECONDS

    def sized(self, replicas: int) -> Allocation:
        """This job's allocation at ``replicas``."""
        return Allocation(
            replicas=replicas,
            processes_per_replica=self.processes_per_replica,
            resources=self.resources,
            roles=ordered(self.roles),
        )

    def check(self) -> None:
        """Refuse what can never run.

        Raises:
            ImpossibleBounds: no replica count satisfies ``replicas``.
            BadInput: another field cannot be used; the message names it and the remedy.
        """
        check_name("name", self.name)
        check_name("project", self.project)
        _check_bounds(self.replicas)
        _check_roles(self)
        if self.processes_per_replica < 1:
            raise BadInput(
                f"processesPerReplica {self.processes_per_replica} must be at least 1",
                field="processesPerReplica",
            )
        if not self.command and not self.image:
            raise BadInput("command is empty; give what to run", field="command")
        _check_process(self.command, self.environment)
        _check_limits(self)
        _check_grace(self.checkpoint.grace_seconds)
        _check_shape(self)
        for name, value in self.environment.items():
            if isinstance(value, Secret) and (value.from_file is None) == (
                value.from_secret is None
            ):
                raise BadInput(
                    f"environment.{name} needs exactly one of fromFile, fromSecret",
                    field=f"environment.{name}",
                )


def _check_bounds(bounds: Bounds) -> None:
    if bounds.min < 1 or bounds.unit < 1:
        raise ImpossibleBounds(
            f"replicas: min {bounds.min} and unit {bounds.unit} must both be at least 1",
            field="replicas",
        )
    if bounds.min > bounds.max:
        raise ImpossibleBounds(
            f"replicas.min {bounds.min} is more than replicas.max {bounds.max}; "
            "raise max or lower min",
            field="replicas.min",
        )
    if bounds.max > MOST_REPLICAS:
        raise ImpossibleBounds(
            f"replicas.max {bounds.max} is more than {MOST_REPLICAS}; lower it to what the "
            "job could ever use",
            field="replicas.max",
        )
    if next(bounds.sizes(), None) is None:
        raise ImpossibleBounds(
            f"replicas.unit {bounds.unit} has no multiple from {bounds.min} to "
            f"{bounds.max}; raise max to {-(-bounds.min // bounds.unit) * bounds.unit}",
            field="replicas.unit",
        )
    if bounds.start is None and not bounds.allow(bounds.min):
        raise ImpossibleBounds(
            f"replicas.min {bounds.min} is no multiple of replicas.unit {bounds.unit}; "
            f"set min to {next(bounds.sizes())}",
            field="replicas.min",
        )
    if bounds.start is not None and not bounds.allow(bounds.start):
        raise ImpossibleBounds(
            f"replicas.start {bounds.start} is not a multiple of {bounds.unit} from "
            f"{bounds.min} to {bounds.max}",
            field="replicas.start",
        )


def _check_roles(document: JobDocument) -> None:
    roles, bounds = document.roles, document.replicas
    if not roles:
        return
    check_roles(roles, gpus=document.resources.gpus)
    least = others(ordered(roles)) + 1
    if bounds.min < least:
        raise BadInput(
            f"replicas.min {bounds.min} counts all roles, and leaves no worker beside "
            f"{least - 1} of others; raise it to {least}",
            field="replicas.min",
        )
    if document.optimize_mode is OptimizeMode.CLUSTER:
        raise BadInput(
            "optimizeMode cluster divides a pool by a model of workers only; set single-job beside "
            "roles",
            field="optimizeMode",
        )
    if bounds.unit != 1 or document.processes_per_replica != 1:
        raise BadInput(
            "roles are for replicas of one process that come one by one; set replicas.unit and "
            "processesPerReplica to 1",
            field="roles",
        )


def _check_limits(document: JobDocument) -> None:
    given: dict[str, object] = {
        "budget.acceleratorHours": document.budget.accelerator_hours,
        "budget.cost": document.budget.cost,
        "deadline": document.deadline,
    }
    for name, limit in given.items():
        if isinstance(limit, int | float) and not 0 < limit < math.inf:
            raise BadInput(
                f"{name} {limit:g} is no limit; give more than 0, or leave it out", field=name
            )
        if isinstance(limit, datetime) and limit.tzinfo is None:
            raise BadInput(f"{name} {limit.isoformat()} has no time zone; append Z", field=name)
        if limit is not None and document.steps is None:
            raise BadInput(
                f"{name} needs to know how much there is to do; declare steps", field=name
            )


def _check_grace(seconds: float | None) -> None:
    if seconds is not None and not 0 <= seconds <= MOST_SECONDS:
        raise BadInput(
            f"checkpoint.graceSeconds {seconds:g} is no time to save; give seconds, "
            f"{MOST_SECONDS:.0f} at most",
            field="checkpoint.graceSeconds",
        )


def _check_shape(document: JobDocument) -> None:
    parallel, batch = document.parallelism, document.batch
    sizes = {
        "parallelism.tensor": parallel.tensor,
        "parallelism.pipeline": parallel.pipeline,
        "batch.globalSize": batch.global_size,
        "batch.globalMax": batch.global_max,
        "batch.localMin": batch.local_min,
        "batch.localMax": batch.local_max,
        "steps": document.steps,
        "epochs": document.epochs,
    }
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise BadInput(f"{name} {size} must be at least 1, or left out", field=name)
    check_resources(document.resources, "resources")
    if batch.tune and parallel != Parallelism():
        raise BadInput(
            "batch.tune is for data-parallel jobs; leave it out beside parallelism",
            field="batch.tune",
        )
    for low, high in (
        ("batch.localMin", "batch.localMax"),
        ("batch.globalSize", "batch.globalMax"),
    ):
        least, most = sizes[low], sizes[high]
        if least is not None and most is not None and least > most:
            raise BadInput(f"{low} {least} is more than {high} {most}; lower it", field=low)


def _check_process(command: Sequence[str], environment: Mapping[str, str | Secret]) -> None:
    if any("\0" in word for word in command):
        raise BadInput("command has a NUL character; take it out", field="command")
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name or (isinstance(value, str) and "\0" in value):
            raise BadInput(
                f"environment.{name!r} is what no process can have; give a name that is not "
                "empty and has no `=`, and no NUL character in name or value",
                field=f"environment.{name}",
            )


def check_name(field: str, name: str) -> None:
    """Refuse what cannot be the name of a job or project.

    Raises:
        BadInput: it names ``field``.
    """
    if not re.fullmatch(NAME, name):
        raise BadInput(
            f"{field} {name!r} must be 1 to 63 letters, digits, `-`, `_` or `.`, and begin and end "
            "with a letter or digit",
            field=field,
        )
