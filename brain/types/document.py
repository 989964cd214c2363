"""The document that describes a job to train, and the checks of its fields."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from brain.errors import BadInput
from brain.types.allocation import Allocation, Bounds, check_bounds
from brain.types.grace import GRACE_SECONDS, check_grace
from brain.types.limits import Budget, ResourceLimits, check_budget, check_reservation
from brain.types.resources import Resources
from brain.types.roles import (
    RoleSize,
    check_groups,
    check_resources,
    check_roles,
    ordered,
    others,
)

#: Pattern of names, which appear in URLs, file names and names of cluster objects.
NAME = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"

#: Range of priority classes; each step multiplies a job's weight by 4.
PRIORITIES = range(-8, 9)

#: Options by which a command may set its own grace.
_OWN_GRACE = frozenset(
    {"--shutdown-timeout", "--shutdown_timeout", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"}
)

#: Amounts that a replica reserves if its document gives none.
UNSAID = Resources(cpu_millis=1000)


class OptimizeMode(StrEnum):
    """The source of a job's plans: people only, Brain for this job alone, or Brain for its pool."""

    MANUAL = "manual"
    SINGLE_JOB = "single-job"
    CLUSTER = "cluster"


class PolicyMode(StrEnum):
    """The policy mode: Brain makes no plans, only records them, lets a person approve them, or
    applies them itself.
    """

    OFF = "off"
    SHADOW = "shadow"
    APPROVE = "approve"
    AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The owner's statements about the script's checkpoints; the probe detects most facts by
    itself.
    """

    #: File or directory; relative to the job's directory.
    path: str | None = None
    #: Interval in the form ``90 s``, ``5 m`` or ``200 steps``.
    every: str | None = None
    #: Signal on which the script saves and exits, for example ``SIGUSR1``.
    signal: str | None = None
    #: True: ``torch.save`` returns once the file is in memory, and writes it to storage later.
    memory: bool = False
    #: Seconds that the script has to save and exit after SIGTERM or ``signal``. None: the value of
    #: a launcher's ``--shutdown-timeout`` in the command, else 30.
    grace_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Fixed dimensions of a 3D-parallel job, whose data parallelism may change."""

    tensor: int = 1
    pipeline: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchBounds:
    #: Examples per optimizer step over all workers, if the script keeps them fixed.
    global_size: int | None = None
    #: Largest global batch that training bears; with it Brain may choose a batch for goodput, once
    #: gradient noise is measured.
    global_max: int | None = None
    local_min: int | None = None
    local_max: int | None = None
    #: Largest local batch on some types of accelerator; on all others it is ``local_max``.
    local_max_on: Mapping[str, int] = field(default_factory=dict)
    #: True: the script takes its batch from the file that BRAIN_BATCH_FILE names, so Brain may
    #: choose it; ``--auto_tunning`` in the command says the same.
    tune: bool = False

    @property
    def local_most(self) -> int | None:
        """Return the largest local batch that every type of accelerator holds."""
        return min((n for n in (self.local_max, *self.local_max_on.values()) if n), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """The number of failures after which Brain ends a job."""

    #: Worlds that may be lost to failures (not to plans) before the job is Failed.
    limit: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalPolicy:
    """The approval that Brain's plans for a job need."""

    #: None: the service's default.
    mode: PolicyMode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A reference to the secret value of an environment variable; exactly one field is set, which
    says where the value is stored.
    """

    #: File; a relative path starts in the job's directory.
    from_file: str | None = None
    #: Key of a cluster's Secret, as ``secret/key``.
    from_secret: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDocument:
    """The description of a job to train (YAML or JSON, camelCase keys)."""

    name: str
    command: tuple[str, ...] = ()
    image: str | None = None
    #: Hash of the script's text, by which Brain recognises jobs of the same script; ``brain
    #: submit`` fills it in.
    script_hash: str | None = None
    project: str = "default"
    #: Directory in which the command runs; the submitter's directory when sent by the command line.
    directory: str | None = None
    replicas: Bounds = Bounds()
    #: True: replicas do separate work by design. Brain then does not check that they train
    #: together, and adds up their examples.
    independent: bool = False
    processes_per_replica: int = 1
    #: Replicas that are not workers: ``ps``, ``chief``, ``evaluator``. TF_CONFIG tells each process
    #: the addresses of all others.
    roles: Mapping[str, RoleSize] = field(default_factory=dict)
    #: Workers that differ from the others in processes and amounts, by the name of their group.
    #: ``replicas`` counts them, too; Brain changes the size of no group.
    groups: Mapping[str, RoleSize] = field(default_factory=dict)
    #: Amounts that each replica reserves.
    resources: Resources = UNSAID
    #: Largest amounts that all replicas together may reserve.
    resource_limits: ResourceLimits = ResourceLimits()
    accelerator: str | None = None
    parallelism: Parallelism = Parallelism()
    batch: BatchBounds = BatchBounds()
    checkpoint: Checkpoint = Checkpoint()
    epochs: int | None = None
    steps: int | None = None
    #: Both limits need a declared end (``steps``), without which the rest of the work is unknown.
    budget: Budget = Budget()
    #: Brain chooses only sizes that meet the deadline with a probability of 80 %.
    deadline: datetime | None = None
    restarts: Restarts = Restarts()
    priority: int = 0
    #: True: Brain may suspend the job for a waiting one of higher priority; the job queues again at
    #: once, and goes on from its checkpoint.
    preemptible: bool = False
    optimize_mode: OptimizeMode = OptimizeMode.SINGLE_JOB
    policy: ApprovalPolicy = ApprovalPolicy()
    #: Write-only: answers only show the names.
    environment: Mapping[str, str | Secret] = field(default_factory=dict)

    @property
    def allocation(self) -> Allocation:
        """Return the size with which the job starts, before any plan."""
        return self.sized(self.replicas.first)

    @property
    def tunes(self) -> bool:
        """Return True if the document declares that the script reads its batch size from Brain."""
        whole = self.parallelism == Parallelism() and not self.groups
        # The option may be part of a single string after a shell's -c.
        flags = {flag for word in self.command for flag in word.split()}
        return whole and (self.batch.tune or "--auto_tunning" in flags)

    @property
    def grace_seconds(self) -> float | None:
        """Return the seconds that the script has to save and exit after the signal to end; None if
        only the launcher's command line sets them.
        """
        said = self.checkpoint.grace_seconds
        flags = {flag.partition("=")[0] for word in self.command for flag in word.split()}
        if said is not None or flags & _OWN_GRACE or _OWN_GRACE & self.environment.keys():
            return said
        return GRACE_SECONDS

    def sized(self, replicas: int) -> Allocation:
        return Allocation(
            replicas=replicas,
            processes_per_replica=self.processes_per_replica,
            resources=self.resources,
            roles=ordered({**self.roles, **self.groups}),
        )

    def accelerator_of(self, group: str) -> str | None:
        """Return the product name of the accelerators of a group's replicas; None for any."""
        own = self.groups.get(group, RoleSize()).accelerator
        return self.accelerator if own is None else own

    def check(self) -> None:
        """Raise BadInput for a document that can never run.

        Raises:
            ImpossibleBounds: no replica count satisfies ``replicas``.
            BadInput: another field cannot be used; the message names it and the remedy.
        """
        check_name("name", self.name)
        check_name("project", self.project)
        check_bounds(self.replicas)
        _check_roles(self)
        _check_groups(self)
        if self.processes_per_replica < 1:
            raise BadInput(
                f"processesPerReplica {self.processes_per_replica} must be at least 1",
                field="processesPerReplica",
            )
        if not any(self.command[:1]) and not self.image:
            raise BadInput("command is empty; give the program to run", field="command")
        _check_process(self.command, self.environment)
        check_budget(self.budget, self.deadline, self.steps)
        check_grace(self.checkpoint.grace_seconds)
        _check_shape(self)
        check_reservation(self.resource_limits, self.allocation, self.sized(self.replicas.min))
        for name, value in self.environment.items():
            if isinstance(value, Secret) and (value.from_file is None) == (
                value.from_secret is None
            ):
                raise BadInput(
                    f"environment.{name} needs exactly one of fromFile and fromSecret; "
                    "give one of them",
                    field=f"environment.{name}",
                )

    def check_submitted(self) -> None:
        """Raise BadInput for a value without a meaning in a document that a person submits.

        Earlier versions stored such values, so stored documents are not checked here.

        Raises:
            BadInput: the message names the field, its value and the remedy.
        """
        if self.restarts.limit < 0:
            raise BadInput(
                f"restarts.limit {self.restarts.limit} must be 0 or more; 0 ends the job at its "
                "first failure",
                field="restarts.limit",
            )
        if self.priority not in PRIORITIES:
            raise BadInput(
                f"priority {self.priority} must be from {PRIORITIES[0]} to {PRIORITIES[-1]}; each "
                "step multiplies the job's weight by 4",
                field="priority",
            )
        if self.checkpoint.path == "":
            raise BadInput(
                "checkpoint.path '' names no file; give the file or directory that the script "
                "saves to, or leave it out, and Brain detects it",
                field="checkpoint.path",
            )


def _check_roles(document: JobDocument) -> None:
    roles, bounds = document.roles, document.replicas
    if not roles:
        return
    check_roles(roles, gpus=document.resources.gpus)
    least = others(ordered(roles)) + 1
    if bounds.min < least:
        raise BadInput(
            f"replicas.min {bounds.min} counts all roles, and {least - 1} replicas of other "
            f"roles leave no worker; raise replicas.min to {least}",
            field="replicas.min",
        )
    if document.optimize_mode is OptimizeMode.CLUSTER:
        raise BadInput(
            "optimizeMode cluster divides a pool by a model that predicts workers only; set "
            "single-job for a job with roles",
            field="optimizeMode",
        )
    if bounds.unit != 1 or document.processes_per_replica != 1:
        raise BadInput(
            "a job with roles has replicas of one process that are added one at a time; set "
            "replicas.unit and processesPerReplica to 1",
            field="roles",
        )


def _check_groups(document: JobDocument) -> None:
    groups, bounds = document.groups, document.replicas
    if not groups:
        return
    check_groups(groups)
    if document.roles:
        raise BadInput(
            f"groups ({', '.join(groups)}) cannot be combined with roles, whose replicas are "
            "alike; leave one of them out",
            field="groups",
        )
    beside = others(ordered(groups))
    if bounds.min <= beside:
        raise BadInput(
            f"replicas.min {bounds.min} counts all groups, and the {beside} replicas of "
            f"{', '.join(sorted(groups))} leave no other replica; raise replicas.min to "
            f"{beside + 1}",
            field="replicas.min",
        )
    alike = {
        "replicas.unit": (bounds.unit, 1),
        "parallelism.tensor": (document.parallelism.tensor, 1),
        "parallelism.pipeline": (document.parallelism.pipeline, 1),
        "batch.tune": (document.batch.tune, False),
    }
    for name, (value, plain) in alike.items():
        if value != plain:
            raise BadInput(
                f"{name} {value} is for replicas that are alike; leave it out "
                "if the job has groups",
                field=name,
            )
    if document.optimize_mode is OptimizeMode.CLUSTER:
        raise BadInput(
            "optimizeMode cluster divides a pool by a model that predicts only replicas that are "
            "alike; set single-job for a job with groups",
            field="optimizeMode",
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
        **{f"batch.localMaxOn.{kind}": most for kind, most in batch.local_max_on.items()},
        "steps": document.steps,
        "epochs": document.epochs,
    }
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise BadInput(f"{name} {size} must be at least 1, or left out", field=name)
    check_resources(document.resources, "resources")
    if batch.tune and parallel != Parallelism():
        raise BadInput(
            "batch.tune is only for data-parallel jobs; leave it out if parallelism is set",
            field="batch.tune",
        )
    for low, high in (
        *(("batch.localMin", name) for name in sizes if name.startswith("batch.localMax")),
        ("batch.globalSize", "batch.globalMax"),
    ):
        least, most = sizes[low], sizes[high]
        if least is not None and most is not None and least > most:
            raise BadInput(f"{low} {least} is more than {high} {most}; lower it", field=low)


def _check_process(command: Sequence[str], environment: Mapping[str, str | Secret]) -> None:
    if any("\0" in word for word in command):
        raise BadInput("command has a NUL character; remove it", field="command")
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name or (isinstance(value, str) and "\0" in value):
            raise BadInput(
                f"environment.{name!r} is not possible; give a name that is not empty and has "
                "no `=`, and use no NUL character in name or value",
                field=f"environment.{name}",
            )


def check_name(field: str, name: str) -> None:
    """Raise BadInput for a text that cannot be the name of a job or project.

    Raises:
        BadInput: the name cannot be used; the message names ``field``.
    """
    if not re.fullmatch(NAME, name):
        raise BadInput(
            f"{field} {name!r} is not a valid name; give 1 to 63 letters, digits, `-`, `_` or "
            "`.`, and begin and end with a letter or digit",
            field=field,
        )
