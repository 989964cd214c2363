"""A dictionary that a transaction may change without other transactions seeing it."""

from collections.abc import Iterator, MutableMapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Rows(MutableMapping[K, V]):
    """A dictionary that holds a transaction's changes to ``committed`` rows; ``commit`` applies
    them.

    The cost of a transaction depends on the number of its changes, not on the size of the table. No
    other transaction may read ``committed`` meanwhile; transactions take turns.
    """

    __slots__ = ("_committed", "_gone", "_length", "_new")

    def __init__(self, committed: dict[K, V]) -> None:
        self._committed = committed
        self._new: dict[K, V] = {}
        self._gone: set[K] = set()
        self._length = len(committed)

    def __getitem__(self, key: K) -> V:
        if key in self._new:
            return self._new[key]
        if key in self._gone:
            raise KeyError(key)
        return self._committed[key]

    def __contains__(self, key: object) -> bool:
        return key in self._new or (key in self._committed and key not in self._gone)

    def __iter__(self) -> Iterator[K]:
        yield from (key for key in self._committed if key not in self._gone)
        yield from (key for key in self._new if self._is_added(key))

    def __len__(self) -> int:
        return self._length

    def __setitem__(self, key: K, value: V) -> None:
        self._length += key not in self
        self._new[key] = value

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        self._length -= 1
        self._new.pop(key, None)
        if key in self._committed:
            self._gone.add(key)

    def commit(self) -> None:
        """Move the changes to the rows that every transaction reads."""
        for key in self._gone:
            del self._committed[key]
        self._committed.update(self._new)

    def _is_added(self, key: K) -> bool:
        return key not in self._committed or key in self._gone
