"""The name that a person meant who wrote another."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

#: Shorter words begin too many names.
_SHORTEST = 3
#: So many names are a hint; more are a list.
_MOST = 3


def meant(word: str, here: Sequence[str], elsewhere: Iterable[str] = ()) -> str:
    """Return the names that ``word`` may stand for, joined by *or*; empty where none is near.

    Args:
        word: As it was written.
        here: Names that are known where it stands, with their path if they have one.
        elsewhere: Names with their path that are known in other places, too.

    >>> meant("cpu", ["cpuMillis", "memoryBytes", "gpus"]), meant("pth", ["path", "every"])
    ('cpuMillis', 'path')
    >>> meant("memory", ["name", "policy"], ["checkpoint.memory", "resources.memoryBytes"])
    'checkpoint.memory or resources.memoryBytes'
    """
    letters = _letters(word)

    def same(name: str) -> bool:
        return _letters(_last(name)) == letters

    def begins(name: str) -> bool:
        other = _letters(_last(name))
        long = min(len(other), len(letters)) >= _SHORTEST
        return long and (other.startswith(letters) or letters.startswith(other))

    def near(cutoff: float) -> list[str]:
        known = {_last(name): name for name in here}
        return [known[one] for one in get_close_matches(word, known, n=1, cutoff=cutoff)]

    others = [name for name in elsewhere if same(name) or begins(name)]
    # Fields that are somewhere deeper as well are meant where they are nearer.
    others = [one for one in others if not any(one.endswith(f".{other}") for other in others)]
    found = (
        [name for name in here if same(name)]
        or [name for name in here if begins(name)]
        or (others if any(map(same, others)) else [])
        or near(0.6)
        or others
        or near(0.5)
    )
    return " or ".join(found) if len(found) <= _MOST else ""


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()
