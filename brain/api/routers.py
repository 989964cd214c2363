"""Routers, each of which collects the routes of one module."""

from fastapi import APIRouter
from fastapi.routing import APIRoute


def router(tag: str, *, prefix: str = "/api/v1") -> APIRouter:
    """Return a router for routes below ``prefix``, which the app can use without copying its
    routes.

    ``include_router`` would build each route a second time, at the service's first request.
    """
    return APIRouter(prefix=prefix, tags=[tag], generate_unique_id_function=operation_id)


def operation_id(route: APIRoute) -> str:
    """Return the name of the route's function; a test checks that all such names are unique."""
    return route.name
