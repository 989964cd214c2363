"""The orders in which clients may request lists: ``sort=name``, ``sort=-updated_at``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from fastapi import Query

from brain.api.pages import Instant, Number, PlanKey, Text, key_of, page_of
from brain.errors import BadInput
from brain.types import order
from brain.types.order import Order, Place
from brain.views import Page

Row = TypeVar("Row")
Row_co = TypeVar("Row_co", covariant=True)


class Read(Protocol[Row_co]):
    """Reads a page of rows; the ``page`` methods of the stores have this signature."""

    def __call__(self, *, after: Place | None, size: int, order: Order) -> Sequence[Row_co]: ...


@dataclass(frozen=True, slots=True)
class Orders:
    #: Order of a request without ``sort``.
    default: Order
    #: Types of the fields by which clients may sort, and (``apart``) of the fields that distinguish
    #: any two rows. Clients use the last part of a field's name.
    fields: Mapping[str, Any]
    apart: Mapping[str, Any]

    @property
    def parameter(self) -> Any:
        """Return the query parameter ``sort``."""
        first, *_ = self._names
        told = f"{', '.join(self._names)}; put - before a name for descending order: -{first}"
        return Query("", description=told)

    @property
    def _names(self) -> Mapping[str, str]:
        return {field.rpartition(".")[2]: field for field in self.fields}

    def page(
        self,
        read: Read[Row],
        *,
        sort: str,
        page_token: str,
        size: int,
        wanted: Callable[[Row], bool] = lambda row: True,
    ) -> Page[Row]:
        """Return a page of rows in the requested order; its page token works only with this order.

        Raises:
            BadInput: the list has no such order, or the token is from another list or order.
        """
        asked = self._order(sort)
        after = self._place(page_token, sort, asked)
        return page_of(
            lambda key, count: read(after=key and key[1:], size=count, order=asked),
            lambda row: (sort, *asked.place(row)),
            after=None if after is None else (sort, *after),
            size=size,
            wanted=wanted,
        )

    def _order(self, sort: str) -> Order:
        if not sort:
            return self.default
        name = sort.removeprefix("-")
        field = self._names.get(name)
        if field is None:
            raise BadInput(
                f"sort: cannot sort by {name!r}; choose one of {', '.join(self._names)}, "
                "prefixed with - for descending order",
                field="sort",
            )
        return Order(tuple(dict.fromkeys((field, *self.apart))), descending=sort != name)

    def _place(self, page_token: str, sort: str, asked: Order) -> Place | None:
        types = {**self.fields, **self.apart}
        kinds = (Text, *(types[name] for name in asked.fields))
        key: Place | None = key_of(page_token, tuple[kinds])  # type: ignore[valid-type]
        if key is not None and key[0] != sort:
            raise BadInput(
                f"page_token is from a list with sort={key[0]!r}, not {sort!r}; keep sort from "
                "page to page, or leave page_token out to start at the first page",
                field="page_token",
            )
        return key and key[1:]


JOBS = Orders(
    order.JOBS,
    {
        "created_at": Instant,
        "document.name": Text,
        "owner": Text,
        "pool": Text,
        "document.project": Text,
        "state": Text,
        "updated_at": Instant,
    },
    {"id": Text},
)
PLANS = Orders(
    order.PLANS,
    {"created_at": Instant, "kind": Text, "state": Text, "updated_at": Instant},
    {"job": Text, "generation": PlanKey},
)
NODES = Orders(
    order.NODES,
    {"name": Text, "pool": Text, "accelerator": Text, "seen_at": Instant},
    {"name": Text},
)
AUDIT = Orders(
    order.AUDIT, {"at": Instant, "actor": Text, "action": Text, "target": Text}, {"id": Number}
)
