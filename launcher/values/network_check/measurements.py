"""Measurements of nodes, as agents report them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Group = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMeasured:
    """Measurements of one node in one round."""

    ok: bool
    #: The error; empty if there was none.
    reason: str = ""
    #: Seconds of its own arithmetic, and of exchanges with its group; 0 = not measured.
    compute_seconds: float = 0.0
    exchange_seconds: float = 0.0
    #: Standard errors of both, in seconds; 0 = not known.
    compute_error: float = 0.0
    exchange_error: float = 0.0
    #: Only nodes of one kind are compared: the accelerator's name, ``cpu``.
    kind: str = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRound:
    """The groups of replicas that one round of the network check tests, and their results by
    replica.
    """

    groups: tuple[Group, ...]
    measured: Mapping[int, NodeMeasured]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """Usual times of a healthy node of one kind; 0 if the time was never measured."""

    compute_seconds: float = 0.0
    exchange_seconds: float = 0.0


def replicas_of(rounds: Sequence[CheckRound]) -> list[int]:
    """Return all replicas that are checked; the first round tests each of them."""
    return [replica for group in rounds[0].groups for replica in group]
