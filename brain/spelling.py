"""Suggestions for misspelt names."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

#: Least letters of a prefix: shorter ones begin too many names.
_SHORTEST = 3
#: Most names in a suggestion.
_MOST = 3


def meant(word: str, here: Sequence[str], elsewhere: Iterable[str] = ()) -> str:
    """Return the names that ``word`` may mean, joined by *or*; empty if none is similar.

    Args:
        word: The unknown name.
        here: Known names at the place of ``word``, with their paths if they have any.
        elsewhere: Names that are known at other places, with their paths.

    >>> meant("cpu", ["cpuMillis", "memoryBytes", "gpus"]), meant("pth", ["path", "every"])
    ('cpuMillis', 'path')
    >>> meant("memory", ["name", "policy"], ["checkpoint.memory", "resources.memoryBytes"])
    'checkpoint.memory or resources.memoryBytes'
    >>> meant("local", ["localMin", "localMax", "localMaxOn"])
    'localMin, localMax or localMaxOn'
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
    # Of equal names at several depths, the least deep one is meant.
    others = [one for one in others if not any(one.endswith(f".{other}") for other in others)]
    found = (
        [name for name in here if same(name)]
        or [name for name in here if begins(name)]
        or (others if any(map(same, others)) else [])
        or near(0.6)
        or others
        or near(0.5)
    )
    if len(found) > _MOST:
        return ""
    return " or ".join(part for part in (", ".join(found[:-1]), *found[-1:]) if part)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()
