"""Options of the network check."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckWork:
    """The amount of work in one check, from the options ``check_edge``, ``check_mebibytes`` and
    ``check_repeats`` of ``--rdzv-conf``.
    """

    #: Rows of the square matrices that are multiplied; 0 to suit the device.
    edge: int = 0
    #: Exchanged at a time.
    mebibytes: int = 16
    #: Timings that a median is taken of.
    repeats: int = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTerms:
    """Options of the node check."""

    #: True to print the measurements, for ``--comm-perf-test``.
    print_all: bool = False
    exclude_stragglers: bool = False
    ratio: float = 1.15
    #: For one round: import torch, measure, give up.
    seconds: float = 120.0
    work: CheckWork = CheckWork()
    #: File of usual times, one for all jobs of this state directory.
    memory: Path
    #: Says something that a person shall see.
    tell: Callable[[str], None]
