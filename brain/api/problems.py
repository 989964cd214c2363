"""Errors as RFC 9457 problem documents, and the table of status codes by error class.

A problem's ``type`` is ``/problems/<class of brain.errors>`` and never changes; its ``detail``
names the field, the value and the remedy. FastAPI's own errors (unknown path, wrong method) have
the same form.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from http import HTTPStatus
from math import ceil
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from brain import errors, wire
from brain.views import Problem

MEDIA_TYPE = "application/problem+json"

#: Id of the current request, for lines of the log; empty outside of requests.
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")

#: Status by error class; other classes have the status of their nearest base class.
STATUS: Mapping[type[errors.BrainError], int] = {
    errors.BadInput: 422,
    errors.TooLarge: 413,
    errors.UnknownVersion: 426,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.VersionMismatch: 412,
    errors.KeyReused: 422,
    errors.NotSignedIn: 401,
    errors.NotAllowed: 403,
    errors.Overloaded: 429,
    errors.TooSlow: 408,
    errors.Unavailable: 503,
    errors.Undetermined: 422,
    errors.BrainError: 500,
}

#: Problem types, by status, of errors that have no class in ``brain.errors``.
_PLAIN_TYPES = {404: "NotFound", 405: "MethodNotAllowed", 413: "TooLarge", 500: "InternalError"}


#: Errors that any route may raise, except routes that need no token.
_ANYWHERE = (
    errors.NotSignedIn,
    errors.NotAllowed,
    errors.BadInput,
    errors.Overloaded,
    errors.Unavailable,
)


def status_of(kind: type[errors.BrainError]) -> int:
    """Return the HTTP status of an error class."""
    return next(STATUS[base] for base in kind.__mro__ if base in STATUS)


def problems(*kinds: type[errors.BrainError]) -> dict[int | str, dict[str, Any]]:
    """Declare, for the OpenAPI document, the errors that a route may raise.

    ``brain.api.openapi`` adds the schema ``Problem`` to each answer. If this function declared the
    schema as the model of 370 answers, FastAPI would build it 370 times at each start.
    """
    told: dict[int | str, dict[str, Any]] = {}
    for kind in dict.fromkeys((*kinds, *_ANYWHERE)):
        names = told.setdefault(status_of(kind), {"description": ""})
        names["description"] = ", ".join(filter(None, [names["description"], kind.__name__]))
    return told


def problem_of(error: errors.BrainError, request_id: str) -> Problem:
    status = status_of(type(error))
    return Problem(
        type=f"/problems/{type(error).__name__}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=str(error),
        field=error.field if isinstance(error, errors.BadInput) else None,
        request_id=request_id,
    )


def answer(error: errors.BrainError, request_id: str) -> Response:
    headers = {}
    if isinstance(error, errors.NotSignedIn):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, errors.UnknownVersion):
        headers["Upgrade"] = f"brain/{wire.VERSION}"
    if isinstance(error, errors.Overloaded):
        headers["Retry-After"] = str(max(1, ceil(error.retry_after_seconds)))
    if isinstance(error, errors.Unavailable):
        headers["Retry-After"] = "1"
    return _response(problem_of(error, request_id), headers)


def install(app: FastAPI) -> None:
    """Make ``app`` answer errors with problem documents; ``Outermost`` handles bugs."""
    app.add_exception_handler(errors.BrainError, _on_domain)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)


def request_id_of(request: Request) -> str:
    """Return the id that the outermost layer gave this request."""
    return str(getattr(request.state, "request_id", ""))


def _response(problem: Problem, headers: Mapping[str, str]) -> Response:
    return Response(
        wire.encode(problem), problem.status, headers=dict(headers), media_type=MEDIA_TYPE
    )


def _on_domain(request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.BrainError)
    if error.limit:
        request.app.state.context.metrics.refusals.labels(error.limit).inc()
    return answer(error, request_id_of(request))


def _on_invalid(request: Request, error: Exception) -> Response:
    """Answer a request with parameters of a wrong type; ``brain.wire`` checks bodies instead."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:])
    bad = errors.BadInput(f"{field} {first.get('input')!r}: {first['msg']}", field=field)
    return answer(bad, request_id_of(request))


def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    name = _PLAIN_TYPES.get(error.status_code, HTTPStatus(error.status_code).name.title())
    detail = {
        404: f"there is nothing at {request.url.path}",
        405: f"{request.url.path} does not support {request.method}",
    }.get(error.status_code)
    told = (
        (f"{detail}; docs/reference/openapi.json lists all paths and methods")
        if detail
        else str(error.detail)
    )
    headers = dict(error.headers or {})
    if error.status_code == 405:
        # The framework names only the methods of the first route of the path.
        headers["Allow"] = ", ".join(sorted(_methods(request)))
    return _response(_plain(name, error.status_code, told, request_id_of(request)), headers)


def _methods(request: Request) -> set[str]:
    """Return the methods that the routes of the request's path support."""
    found: set[str] = set()
    for route in request.app.router.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods
    return found | ({"HEAD"} if "GET" in found else set())


def bug(request_id: str) -> Response:
    """Return the response for a bug. It contains the request's id, with which you find the
    traceback in the log.
    """
    detail = f"the service failed; look in its log for request {request_id}"
    return _response(_plain("InternalError", 500, detail, request_id), {})


def unreadable(request_id: str) -> Response:
    """Return the response for bytes that are not a request."""
    detail = (
        "the bytes are not an HTTP request; check that the client speaks HTTP (version 1.1 or "
        "1.0), and uses https only if the service does"
    )
    return _response(_plain("BadRequest", 400, detail, request_id), {})


def _plain(name: str, status: int, detail: str, request_id: str) -> Problem:
    return Problem(
        type=f"/problems/{name}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        request_id=request_id,
    )
