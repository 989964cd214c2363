"""A policy's input in each round, and the free accelerators on which it places jobs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from brain.simulator.placing import Placement, UsableNode, of_kind, place


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    key: str
    arrived_seconds: float
    #: Accelerators that the owner requested, and the allowed sizes.
    wanted: int
    sizes: tuple[int, ...]
    #: Present nodes.
    placement: Placement = ()
    #: Accelerator-seconds that the job has held.
    attained: float = 0.0
    priority: int = 0
    #: Seconds of work that a change of the job's placement costs.
    restart_seconds: float = 0.0
    #: Seconds to the job's end at a size on a kind of node; exact, if the policy may know that.
    seconds_left: Callable[[int, str], float]


class RoundPolicy(Protocol):
    """A policy that decides about all jobs in each round."""

    def allot(
        self, jobs: Sequence[Contender], machines: Sequence[UsableNode]
    ) -> Mapping[str, Placement]:
        """Return the placement of each job that should run; all other jobs stop."""
        ...


class FreeCapacity:
    """The free accelerators by kind of node, while a round is being decided."""

    def __init__(self, machines: Sequence[UsableNode]) -> None:
        self._kind = {machine.index: machine.kind for machine in machines}
        free = {machine.index: machine.capacity for machine in machines}
        self._free = of_kind(machines, free)

    def keep(self, placement: Placement) -> bool:
        """Keep a job on its present nodes; return False if one of them is gone or full."""
        if not placement or any(node not in self._kind for node in placement):
            return False
        free = self._free[self._kind[placement[0]]]
        if any(free[node] < placement.count(node) for node in set(placement)):
            return False
        self._take(placement)
        return True

    def take(self, wanted: int, kind: str | None = None) -> Placement | None:
        """Take ``wanted`` accelerators of the first kind (in the order of nodes) that has
        enough.
        """
        for name, free in self._free.items():
            if kind in (None, name):
                found = place(free, wanted)
                if found is not None:
                    self._take(found)
                    return found
        return None

    def has(self, wanted: int) -> bool:
        """Return True if some kind has ``wanted`` free accelerators."""
        return any(sum(free.values()) >= wanted for free in self._free.values())

    def count(self) -> dict[str, int]:
        """Return the number of free accelerators by kind."""
        return {kind: sum(free.values()) for kind, free in self._free.items()}

    def kind(self, placement: Placement) -> str | None:
        """Return the kind of a placement's nodes; None if they are gone."""
        return self._kind.get(placement[0]) if placement else None

    def _take(self, placement: Placement) -> None:
        free = self._free[self._kind[placement[0]]]
        for node in placement:
            free[node] -= 1
