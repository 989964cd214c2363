"""Decides the consequence of a failure. Pure.

After a transient fault the world restarts on the same nodes. The next world leaves out a sick node
if the other nodes are enough. If a bug repeats at the same step, the job ends, because every
further restart would fail at that step, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from brain.types.diagnosis import Diagnosis, FailureKind
from brain.types.resources import NodeName

#: A bug that was seen so often at one step of the job is not tried again.
SAME_BUG = 2
#: A node that failed first so often in a row, whatever of, is left.
SAME_NODE = 3
#: Failures that are remembered.
REMEMBERED = 16
#: Kinds for which a node may be to blame, as it is not for the script's own errors.
_OF_SCRIPTS = frozenset({FailureKind.CODE, FailureKind.DEVICE_MEMORY})
_OF_NODES = frozenset(
    {
        FailureKind.DEVICE,
        FailureKind.CRASH,
        FailureKind.NETWORK,
        FailureKind.STORAGE,
        FailureKind.MEMORY,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """A failure, in the form stored in the job's history."""

    kind: FailureKind
    node: NodeName | None = None
    replica: int | None = None
    #: Signature of the script's error; empty if no error has a place.
    signature: str = ""
    #: Steps of the job at that time, over restarts; None if they could not be counted.
    step: int | None = None


#: What the other workers do.
GO_BACK, GO_ON = (
    "the other replicas continue from the last checkpoint",
    ("the other replicas continue at once"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequence:
    #: Why the job ends; empty if it goes on.
    give_up: str = ""
    #: Replicas that the next world is formed without.
    leave: tuple[int, ...] = ()
    #: One sentence for people.
    told: str


def occurrence(diagnosis: Diagnosis, signature: str) -> Occurrence:
    """Return a failure's entry for the job's history."""
    return Occurrence(
        kind=diagnosis.kind,
        node=diagnosis.node,
        replica=diagnosis.replica,
        signature=signature,
        step=diagnosis.step,
    )


def consequence(
    history: Sequence[Occurrence], *, spare: bool, staying: bool = False
) -> Consequence:
    """Decide the consequence of the newest failure in a history, which is given oldest first.

    Args:
        history: failures of this job, the newest last.
        spare: True if a world can be formed without the node of the newest failure.
        staying: True if the other workers went on without a restart.
    """
    last = history[-1]
    if _repeats(history):
        when = f"at step {last.step}" if last.step else "before the first step"
        bug = f"{last.signature} failed {SAME_BUG} times {when}"
        batch = ", with this batch" if last.kind is FailureKind.DEVICE_MEMORY else ""
        return Consequence(
            give_up=f"{bug}; another restart would fail there, too{batch}",
            told="the job ends: the same error came twice at the same step"
            if last.step
            else "the job ends: the same error came twice before the first step",
        )
    if last.kind is FailureKind.NODE:
        return Consequence(told=GO_ON if staying else GO_BACK)
    sick = _sick(history)
    if sick and spare and last.replica is not None:
        return Consequence(
            leave=(last.replica,),
            told=(f"the job leaves {last.node}, because {sick}; the other replicas continue"),
        )
    if sick:
        return Consequence(
            told=(f"{sick}, but the world needs this node: its workers restart in place")
        )
    if staying:
        return Consequence(told=f"{GO_ON}; the failed replica restarts in place and joins them")
    return Consequence(told="the workers restart in place, from the last checkpoint")


def _repeats(history: Sequence[Occurrence]) -> bool:
    """True if the newest failures are the same bug at the same step, or lack of device memory even
    before the first step: the same batch would need as much again.
    """
    alike = history[-SAME_BUG:]
    last = alike[-1]
    counted = last.step or last.kind is FailureKind.DEVICE_MEMORY
    known = last.kind in _OF_SCRIPTS and last.signature and counted
    return bool(known) and len(alike) == SAME_BUG and len({_bug(each) for each in alike}) == 1


def _bug(each: Occurrence) -> tuple[str, str, int | None]:
    return each.kind, each.signature, each.step


def _sick(history: Sequence[Occurrence]) -> str:
    """Return why the node of the newest failure is to blame; empty if that is not known."""
    last = history[-1]
    if last.node is None or last.kind not in _OF_NODES:
        return ""
    if last.kind is FailureKind.DEVICE:
        return "an accelerator of the node failed"
    row = history[-SAME_NODE:]
    alone = len(row) == SAME_NODE and all(
        each.node == last.node and each.kind in _OF_NODES for each in row
    )
    return f"the node failed first {SAME_NODE} times in a row" if alone else ""
