"""An agent's knowledge of a world's witness; ``launcher.coordinator.witness_file`` accesses the
file.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessObserved:
    """A file that only one half of a world can take."""

    #: The world that it is of.
    epoch: int = 0
    #: Its path; empty if there is none.
    path: str = ""
    #: True if all members have seen it. Until then the coordinator decides, unless that is gone.
    in_force: bool = False
    #: It was asked for here; there is one answer, which may be long in coming.
    asked: bool = False
    #: Member for whose half it was taken, if that is known.
    holder: int | None = None
    #: It was asked for, and was not there any more.
    lost: bool = False
    #: Why it is not in force, or cannot be taken.
    trouble: str = ""


NO_WITNESS = WitnessObserved()
