"""A pod's position among the other pods; the scaler writes this position into a file of the pod."""

from dataclasses import dataclass
from pathlib import Path

from brain import wire
from brain.errors import BadInput


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlace:
    """The data about a pod that its scaler writes into a file of the pod."""

    #: host:port of the job's oldest live agent; empty if none has an address yet.
    endpoint: str = ""
    #: Zone, spine, rack and switch of its node with ``/`` between them; empty: not known.
    topology: str = ""
    #: Replicas of which the cluster knows that nothing of them runs any more.
    gone: tuple[int, ...] = ()


def read_place(file: Path) -> PodPlace:
    """Read the scaler's present data from the file; all fields are empty if the file cannot be
    read.
    """
    try:
        text = file.read_bytes()
    except OSError:
        return PodPlace()
    try:
        return wire.decode(text, PodPlace) if text.strip() else PodPlace()
    except BadInput:
        # Written by a scaler that is newer than this agent.
        return PodPlace()
