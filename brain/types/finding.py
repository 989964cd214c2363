"""One finding, with its remedy if it is bad."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of ``brain doctor``."""

    level: Literal["ok", "note", "bad"]
    what: str
    remedy: str = ""
