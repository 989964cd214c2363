"""One finding, and, where it is bad, its remedy."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of ``brain doctor``."""

    level: Literal["ok", "note", "bad"]
    what: str
    remedy: str = ""
