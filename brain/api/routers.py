"""Routers, which collect the routes of a module."""

from fastapi import APIRouter
from fastapi.routing import APIRoute


def router(tag: str, *, prefix: str = "/api/v1") -> APIRouter:
    """Return a router whose routes an app takes as they are, below ``prefix``.

    ``include_router`` would build each of them a second time, at the service's first request.
    """
    return APIRouter(prefix=prefix, tags=[tag], generate_unique_id_function=operation_id)


def operation_id(route: APIRoute) -> str:
    """Return the name of the function, which is unique over all routers (a test checks)."""
    return route.name
