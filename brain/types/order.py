"""The order of a list, and the position in the list at which its next page begins."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

Row = TypeVar("Row")
#: The values by which a list is ordered, of one row.
Place = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """An order by fields such as ``document.name``; the last fields distinguish any two rows."""

    fields: tuple[str, ...]
    descending: bool = True

    def place(self, row: object) -> Place:
        found = _getter(self.fields)(row)
        return found if len(self.fields) > 1 else (found,)

    def page(self, rows: Iterable[Row], *, after: Place | None, size: int) -> Sequence[Row]:
        """Return at most ``size`` of the rows that follow the position ``after``, in this order."""
        placed = [(self.place(row), row) for row in rows]
        left = [each for each in placed if after is None or self._is_behind(each[0], after)]
        left.sort(key=lambda each: each[0], reverse=self.descending)
        return [row for _, row in left[:size]]

    def _is_behind(self, place: Place, after: Place) -> bool:
        return place < after if self.descending else place > after


@cache
def _getter(fields: tuple[str, ...]) -> Callable[[object], Any]:
    return attrgetter(*fields)


#: Newest first.
JOBS = AUDIT = Order(("id",))
PLANS = Order(("created_at", "job", "generation"))
#: By name.
NODES = Order(("name",), descending=False)
