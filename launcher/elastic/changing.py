"""Decides a worker's part in a change of the world, as pure functions.

Every message names the epoch of the coming world; messages about a world with a lower epoch are
ignored. In a planned change all members change at the same step. A member agrees to a step only if
it has not reached that step yet, and then waits there until it knows if the other members agreed,
too. So between changes, steps exchange no messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any


class Due(Enum):
    """A worker's choice at the end of a step, or after a failed step."""

    GO_ON = "go on"
    #: The next world is not decided, or not built.
    WAIT = "wait"
    MOVE = "move"
    #: The next world has no place for it.
    PART = "part"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The next world, as its coordinator describes it to this worker."""

    epoch: int
    rank: int
    size: int
    #: The present world is over, so that no worker waits for a step.
    now: bool = False
    #: It has no place there.
    parting: bool = False
    #: Ranks that have no state yet; of no meaning where it comes ``now``.
    newcomers: tuple[int, ...] = ()
    #: Address of this machine, where peers reach it.
    host: str = "127.0.0.1"
    #: Environment variables that differ in that world.
    environment: dict[str, str] = field(default_factory=dict)
    #: Of BRAIN_WORKER, the same.
    place: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """A worker's knowledge of the next world, if there is one."""

    plan: Plan | None = None
    built: bool = False
    #: Steps after which all change; None until that is agreed.
    at: int | None = None
    committed: bool = False

    @property
    def watched(self) -> bool:
        """True if each step must check for the next world."""
        return self.plan is not None and (self.plan.now or self.at is not None)

    @property
    def now(self) -> bool:
        """True if the world changes immediately, because no worker waits for an agreed step."""
        return self.plan is not None and self.plan.now

    @property
    def certain(self) -> bool:
        """True if the next world is decided, and its members have met."""
        return self.built and (self.now or self.committed)

    def about(self, epoch: int) -> bool:
        """True if the next world has the given epoch."""
        return self.plan is not None and self.plan.epoch == epoch

    def planned(self, plan: Plan, world: int) -> Coming:
        """Return the state with another plan; a plan with a lower epoch than the known plan changes
        nothing.
        """
        newest = world if self.plan is None else max(world, self.plan.epoch)
        return self if plan.epoch <= newest else Coming(plan=plan, built=plan.parting)

    def ready(self, epoch: int) -> Coming:
        """Return the state after the next world's process group has been built."""
        return replace(self, built=True) if self.about(epoch) else self

    def agreed(self, epoch: int, step: int) -> Coming:
        """Return the state in which all workers will change after ``step`` steps."""
        return replace(self, at=step) if self.about(epoch) else self

    def decided(self, epoch: int) -> Coming:
        """Return the state after all workers have agreed to change; this agreement cannot be
        undone.
        """
        return replace(self, committed=True) if self.about(epoch) else self

    def dropped(self, epoch: int) -> Coming:
        """Return the state without the world of ``epoch``; with 0, without any next world.

        A world that all workers agreed to is kept.
        """
        old = self.plan is None or (epoch != 0 and not self.about(epoch))
        return self if old or self.committed else Coming()

    def relief(self) -> Due:
        """Return what the worker does after a failed step."""
        if self.plan is not None and self.plan.parting and self.committed:
            return Due.PART
        return Due.MOVE if self.certain and self.now else Due.WAIT

    def due(self, steps: int) -> Due:
        """Return what the worker does after ``steps`` steps."""
        plan = self.plan
        if plan is None or not self.watched:
            return Due.GO_ON
        if plan.now:
            return Due.MOVE if self.built else Due.WAIT
        if self.at is not None and steps < self.at:
            return Due.GO_ON
        if not self.committed:
            return Due.WAIT
        if plan.parting:
            return Due.PART
        return Due.MOVE if self.built else Due.WAIT


def step_to_change_at(steps: int, step_seconds: float, told_seconds: float) -> int:
    """Return the number of completed steps at which all workers change.

    ``steps`` is the number of steps that the calling worker has completed. All workers are informed
    within ``told_seconds``, before they reach the returned step.

    >>> [step_to_change_at(100, step_seconds, 0.02) for step_seconds in (0.05, 0.001, 0.0)]
    [102, 122, 102]
    """
    meanwhile = told_seconds / step_seconds if step_seconds > 0 else 0.0
    return steps + 2 + (int(meanwhile) if meanwhile >= 1 else 0)
