"""Query parameters: refuses unknown parameters, and selects the fields of a list's items."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import fields
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from brain import storable
from brain.errors import BadInput
from brain.spelling import meant
from brain.views import Page

#: Cached parameters by method and path; an app has about eighty routes.
_known: dict[tuple[str, str], frozenset[str]] = {}

Fields = Annotated[
    str, Query(description="Fields to return for each item, separated by commas: id,name,state")
]


def check(request: Request) -> None:
    """Raise for parameters that the route does not have, or that no store can hold.

    Raises:
        BadInput: the request has an unknown parameter; the message names a similar known one. Or a
            parameter of the path or query has a NUL character.
    """
    for name, value in (*request.path_params.items(), *request.query_params.multi_items()):
        storable.refuse(value, name)
    if not request.query_params:
        return
    check_names(request, _parameters(request.method, request.scope["route"]))


def check_names(request: Request, known: Collection[str]) -> None:
    """Refuse parameters that are not in ``known``; raise the same error as ``check``."""
    for name in request.query_params:
        if name not in known:
            raise BadInput(
                f"{request.method} {request.url.path} has no query parameter {name!r}; "
                f"{_remedy(name, sorted(known))}",
                field=name,
            )


def picked(kind: type, asked: str) -> Callable[[Page[Any]], object]:
    """Return a function that reduces the items of a page, of type ``kind``, to the fields in
    ``asked``. If ``asked`` is empty, all fields stay.

    Raises:
        BadInput: the items have no such field.
    """
    known = [field.name for field in fields(kind)]
    names = [name.strip(" ") for name in asked.split(",") if name.strip(" ")]
    for name in names:
        if name not in known:
            raise BadInput(
                f"fields: {name!r} is not a field; {_remedy(name, known)}", field="fields"
            )
    if not names:
        return lambda page: page
    return lambda page: {
        "items": [{name: getattr(item, name) for name in names} for item in page.items],
        "next_page_token": page.next_page_token,
    }


def _remedy(name: str, known: Sequence[str]) -> str:
    if not known:
        return "the operation takes no parameters"
    near = meant(name, known)
    return f"did you mean {near}?" if near else f"known: {', '.join(known)}"


def _parameters(method: str, route: APIRoute) -> frozenset[str]:
    key = method, route.path
    if key not in _known:
        _known[key] = frozenset(_names(route.dependant))
    return _known[key]


def _names(dependant: Dependant) -> Iterator[str]:
    """Yield the parameters of a route's function, and of its dependencies."""
    yield from (parameter.alias for parameter in dependant.query_params)
    for other in dependant.dependencies:
        yield from _names(other)
