"""What a command starts: the argument vector of one worker process."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrypoint:
    """One worker's command, and what the launcher in front of it was told."""

    #: The program and its arguments; ``argv[0]`` is an absolute path.
    argv: tuple[str, ...]
    #: What a person calls it: the script's path, ``-m module``, the program.
    name: str
    #: True where it is a Python interpreter, so that the probe can load.
    python: bool
    #: Flags of torchrun, brain-run or dlrover-run that stood in the command, by destination;
    #: empty for a plain command.
    options: Mapping[str, Any] = field(default_factory=dict)
