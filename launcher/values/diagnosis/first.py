"""Finds the failure of a world that came first, and describes it. Pure.

When a rank fails, its peers fail, too, because their connections break. So a worker that reports
only a broken connection is considered after all others. Otherwise the earliest failure is chosen,
by the coordinator's clock: the time at which the worker's end was reported, less the time between
its error and its end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from brain.types.diagnosis import Attachment, Diagnosis, FailureKind
from brain.types.explanation import Evidence
from brain.types.resources import NodeName
from launcher.values.diagnosis.kinds import FailureCause, cause, is_victim, lost_a_peer, signal_name
from launcher.values.diagnosis.signs import Signs

#: More of a traceback is not sent.
_TRACEBACK_CHARACTERS = 4096

#: The meaning of each kind, printed after the rank's own error.
MEANING = {
    FailureKind.CODE: "an error in the script",
    FailureKind.EXIT: "the script ended itself, without an uncaught error",
    FailureKind.MEMORY: "the machine or its control group ran out of memory",
    FailureKind.SHARED_MEMORY: "shared memory (/dev/shm) ran out",
    FailureKind.DEVICE_MEMORY: "the accelerator ran out of memory",
    FailureKind.DEVICE: "an accelerator failed",
    FailureKind.NETWORK: "a connection broke or timed out, and no peer's failure explains it",
    FailureKind.STORAGE: "a read from storage or a write to it failed",
    FailureKind.CRASH: "native code crashed",
    FailureKind.KILLED: (
        "a person or program killed the process; the kernel counted no out-of-memory kill"
    ),
    FailureKind.HANG: "no worker moved",
    FailureKind.NODE: "the agent and its machine are gone",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A worker that ended with a code other than 0."""

    rank: int
    replica: int
    node: NodeName
    #: Negative: by that signal.
    code: int
    message: str
    signs: Signs
    #: When its end was heard, seconds of the coordinator's clock.
    heard_at: float
    #: It was asked to end, so that its code alone says nothing.
    stopped: bool = False

    @property
    def at(self) -> float:
        """Time of the failure, in seconds of the coordinator's clock."""
        return self.heard_at - self.signs.lag_seconds

    @property
    def exit_code(self) -> int:
        """The exit code in a shell's form: 128 + n for signal n."""
        return self.code if self.code >= 0 else 128 - self.code


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedWorker:
    rank: int
    replica: int
    node: NodeName
    #: When its end was heard, seconds of the coordinator's clock.
    heard_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GoneNode:
    """A member whose agent is proved to be gone."""

    replica: int
    node: NodeName


def first(failed: Sequence[Failed]) -> tuple[Failed, FailureCause] | None:
    """Return the failure that caused the other failures, with its own cause; None if nothing
    failed.
    """
    found = [(each, cause(each.code, each.message, each.signs)) for each in failed if each.code]
    unasked = [each for each, _ in found if not each.stopped]
    asked_at = min((each.heard_at for each in unasked), default=None)
    own = [
        (each, why)
        for each, why in found
        if not each.stopped or (why.words and _by_itself(each, why, asked_at))
    ]
    return min(own, key=lambda pair: (is_victim(pair[1].kind), pair[0].at), default=None)


def _by_itself(failed: Failed, why: FailureCause, asked_at: float | None) -> bool:
    """True if a worker that was asked to end had failed by then: it may be asked while it ends.

    If no worker failed unasked, a lost connection is only a result of the stop.
    """
    return not is_victim(why.kind) if asked_at is None else failed.at <= asked_at


def diagnose(
    failed: Sequence[Failed],
    *,
    gone: Sequence[GoneNode] = (),
    finished: Sequence[FinishedWorker] = (),
    step: int | None = None,
) -> Diagnosis | None:
    """Diagnose why a world was lost; None if no sign shows it.

    Args:
        failed: the world's workers that ended with a code other than 0, in any order.
        gone: members whose agents are gone.
        finished: the world's workers that ended with 0, in any order.
        step: the number of the job's optimizer steps at the end, as far as known.
    """
    root = first(failed)
    if gone and (root is None or is_victim(root[1].kind)):
        return _of_nodes(gone, step)
    if root is None:
        return None
    left = [each for each in finished if each.heard_at <= root[0].heard_at]
    if left and lost_a_peer(root[1]):
        return _of_finished(min(left, key=lambda each: each.heard_at), *root, step)
    return _of_worker(*root, step)


def hung(
    sentence: str,
    *,
    evidence: Sequence[Evidence],
    attachments: Sequence[Attachment],
    rank: int | None,
    replica: int | None,
    node: NodeName | None,
    step: int | None,
) -> Diagnosis:
    """Return the diagnosis of a world that makes no progress."""
    return Diagnosis(
        kind=FailureKind.HANG,
        sentence=sentence,
        rank=rank,
        replica=replica,
        node=node,
        step=step,
        evidence=tuple(evidence),
        attachments=tuple(attachments),
    )


def then(diagnosis: Diagnosis, next_step: str) -> Diagnosis:
    return replace(diagnosis, next_step=next_step)


def _of_worker(failed: Failed, why: FailureCause, step: int | None) -> Diagnosis:
    at = "" if step is None else f" at step {step}"
    said = f": {why.words}" if why.words else ""
    ended = f"exited with code {failed.exit_code}"
    if failed.stopped:  # the agent caused this exit code
        ended = "failed"
    elif failed.code < 0:
        ended += f" ({signal_name(failed.code)})"
    place = f" ({why.place})" if why.place else ""
    sentence = (
        f"rank {failed.rank} {ended}{said}{place}; it failed first, on "
        f"{failed.node}{at}: {why.meaning or MEANING[why.kind]}"
    )
    traceback = failed.signs.traceback or failed.message or failed.signs.tail
    return Diagnosis(
        kind=why.kind,
        sentence=sentence,
        rank=failed.rank,
        replica=failed.replica,
        node=failed.node,
        exit_code=1 if failed.stopped else failed.exit_code,
        step=step,
        evidence=why.evidence,
        traceback=traceback[-_TRACEBACK_CHARACTERS:],
    )


def _of_finished(
    early: FinishedWorker, failed: Failed, why: FailureCause, step: int | None
) -> Diagnosis:
    """Return the finished worker that left its peers in a collective, and so caused their
    errors.
    """
    at = "" if step is None else f" at step {step}"
    place = f" ({why.place})" if why.place else ""
    sentence = (
        f"rank {early.rank} exited with code 0 on {early.node}{at} while rank {failed.rank} still "
        f"exchanged data with it{place}: give every rank the same number of steps, or end all "
        "ranks together"
    )
    return Diagnosis(
        kind=FailureKind.EXIT,
        sentence=sentence,
        rank=early.rank,
        replica=early.replica,
        node=early.node,
        exit_code=0,
        step=step,
        evidence=(Evidence(label=f"rank {failed.rank} said", value=why.words), *why.evidence[:1]),
        traceback=(failed.signs.traceback or failed.signs.tail)[-_TRACEBACK_CHARACTERS:],
    )


def _of_nodes(gone: Sequence[GoneNode], step: int | None) -> Diagnosis:
    one = gone[0]
    who = ", ".join(str(each.replica) for each in gone)
    nodes = ", ".join(dict.fromkeys(str(each.node) for each in gone))
    many = len(gone) > 1
    sentence = (
        f"{'replicas' if many else 'replica'} {who} on {nodes} {'are' if many else 'is'} gone: "
        "the connection to the agent ended before any worker there failed"
    )
    return Diagnosis(
        kind=FailureKind.NODE,
        sentence=sentence,
        replica=one.replica,
        node=one.node,
        step=step,
        evidence=(Evidence(label="agents gone", value=f"{who} ({nodes})"),),
    )
