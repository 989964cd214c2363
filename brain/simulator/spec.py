"""The description of the simulated cluster, as a person writes it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from brain import wire
from brain.errors import BadInput, TooLarge
from brain.simulator.applications import DeviceKind, Profile
from brain.types.sharing import PoolShares, ProjectShare

#: Most accelerators; a larger number is a mistake in the document.
MOST_ACCELERATORS = 65_536
#: Most faults of a kind per node per day.
MOST_TROUBLES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    count: int
    #: Accelerators of each node.
    gpus: int
    #: Compute speed of an accelerator, and speed of the network between nodes; 1 is the device of
    #: the profiles.
    speed: float = 1.0
    network: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTrouble:
    """A random fault of nodes."""

    #: Expected number per node per day.
    per_node_day: float = 0.0
    #: Mean seconds of a fault, exponentially distributed.
    minutes: float = 30.0
    #: Step time of a slow node relative to other nodes; unused for lost nodes.
    factor: float = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A cluster and its faults."""

    #: Kinds of nodes by name, which a job document calls ``accelerator``.
    nodes: Mapping[str, NodeKind]
    #: Seconds between decisions without events; a policy is also asked this many seconds after an
    #: event.
    turn_seconds: float = 60.0
    settle_seconds: float = 5.0
    #: Seconds that a change of a job's world costs, unless its application has a value.
    restart_seconds: float = 30.0
    #: Seconds of training between two checkpoints; a lost node costs the training since the last.
    checkpoint_seconds: float = 600.0
    stragglers: NodeTrouble = NodeTrouble()
    failures: NodeTrouble = NodeTrouble()
    #: Division of the accelerators among projects; only Brain follows it.
    projects: Mapping[str, ProjectShare] = field(default_factory=dict)
    #: Additional applications of this document.
    applications: Mapping[str, Profile] = field(default_factory=dict)

    @property
    def accelerators(self) -> int:
        return sum(kind.count * kind.gpus for kind in self.nodes.values())

    @property
    def largest(self) -> int:
        """Return the number of accelerators of the most frequent kind."""
        return max(kind.count * kind.gpus for kind in self.nodes.values())

    @property
    def devices(self) -> Mapping[str, DeviceKind]:
        """Return the device properties of each kind of node."""
        return {
            name: DeviceKind(name=name, speed=kind.speed, network=kind.network)
            for name, kind in self.nodes.items()
        }

    def check(self) -> None:
        """Raise for a cluster that cannot be simulated.

        Raises:
            BadInput: the message names field, value and remedy.
            TooLarge: the cluster has more than ``MOST_ACCELERATORS``.
        """
        if not self.nodes:
            raise BadInput(
                "nodes is empty; write nodes: {t4: {count: 4, gpus: 4}}, for example", field="nodes"
            )
        for name, kind in self.nodes.items():
            _at_least(f"nodes.{name}.count", kind.count, 1)
            _at_least(f"nodes.{name}.gpus", kind.gpus, 1)
            _above(f"nodes.{name}.speed", kind.speed)
            _above(f"nodes.{name}.network", kind.network)
        if self.accelerators > MOST_ACCELERATORS:
            raise TooLarge(
                f"nodes have {self.accelerators} accelerators, more than {MOST_ACCELERATORS}; "
                "lower a count",
                field="nodes",
            )
        _above("turnSeconds", self.turn_seconds)
        _above("checkpointSeconds", self.checkpoint_seconds)
        for name, seconds in (("settle", self.settle_seconds), ("restart", self.restart_seconds)):
            _not_negative(f"{name}Seconds", seconds)
        for name, trouble in (("stragglers", self.stragglers), ("failures", self.failures)):
            _not_negative(f"{name}.perNodeDay", trouble.per_node_day)
            if trouble.per_node_day > MOST_TROUBLES:
                raise BadInput(
                    f"{name}.perNodeDay {trouble.per_node_day:g} is more than {MOST_TROUBLES}; "
                    "lower it",
                    field=f"{name}.perNodeDay",
                )
            _above(f"{name}.minutes", trouble.minutes)
            _at_least(f"{name}.factor", trouble.factor, 1)
        shares = PoolShares(projects=self.projects)
        shares.check()
        shares.check_capacity(self.accelerators, "accelerators")
        for name, profile in self.applications.items():
            profile.check(name)


def read_spec(document: object) -> Spec:
    """Parse and check the description of a cluster.

    Raises:
        UnknownField: a key does not exist; the message names the most similar key.
        BadInput: a value cannot be used; the message names the field.

    >>> read_spec({"nodes": {"t4": {"count": 2, "gpus": 4}}}).accelerators
    8
    """
    if not isinstance(document, Mapping):
        raise BadInput(
            "the cluster must be a mapping that begins with nodes; "
            "for example nodes: {t4: {count: 4, gpus: 4}}",
            field="nodes",
        )
    spec = wire.document(document, Spec)
    spec.check()
    return spec


def _at_least(field: str, value: float, least: float) -> None:
    if not (math.isfinite(value) and value >= least):
        raise BadInput(f"{field} {value:g} must be at least {least:g}; raise it", field=field)


def _above(field: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise BadInput(f"{field} {value:g} must be above 0; raise it", field=field)


def _not_negative(field: str, value: float) -> None:
    _at_least(field, value, 0)
