"""The result of one check of ``brain doctor``."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of ``brain doctor``; a bad result has a remedy."""

    level: Literal["ok", "note", "bad"]
    what: str
    remedy: str = ""
