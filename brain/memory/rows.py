"""A dictionary that a transaction may change without anybody else seeing it."""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Rows(MutableMapping[K, V]):
    """Reads from what was committed; the first change makes a copy, which costs one shallow copy
    of this table and nothing for those that are only read."""

    __slots__ = ("_rows", "changed")

    def __init__(self, committed: Mapping[K, V]) -> None:
        self._rows: Mapping[K, V] = committed
        self.changed = False

    def __getitem__(self, key: K) -> V:
        return self._rows[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __setitem__(self, key: K, value: V) -> None:
        self._own()[key] = value

    def __delitem__(self, key: K) -> None:
        del self._own()[key]

    @property
    def result(self) -> Mapping[K, V]:
        """What the table is after the transaction."""
        return self._rows

    def _own(self) -> dict[K, V]:
        if not self.changed:
            self._rows = dict(self._rows)
            self.changed = True
        assert isinstance(self._rows, dict)
        return self._rows
