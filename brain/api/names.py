"""The service's host names, the refusal of requests from foreign pages, and the headers of all
answers.
"""

from collections.abc import Mapping

from starlette.types import Scope

from brain.api.deps import SAFE
from brain.errors import NotAllowed
from brain.settings import Settings

#: Values of ``Sec-Fetch-Site`` with which browsers mark requests from foreign pages.
_ELSEWHERE = ("cross-site", "same-site")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def hosts_of(settings: Settings) -> frozenset[str]:
    """Return the names that a ``Host`` header of a request may have."""
    configured = (name.strip().lower() for name in settings.allowed_hosts.split(","))
    return frozenset((*_LOOPBACK, settings.host.lower(), *filter(None, configured)))


def check_names(hosts: frozenset[str], headers: Mapping[str, str], scope: Scope) -> None:
    """Refuse a request from a foreign page: one with an unknown ``Host`` or another page's
    ``Origin``.

    A request of HTTP/1.0 without ``Host`` is allowed: load balancers send such requests to check
    the service's health, and browsers never do.

    Raises:
        NotAllowed: the message names the header.
    """
    host = headers.get("host", "")
    nameless = scope["http_version"] == "1.0" and "host" not in headers
    if not nameless and _name(host) not in hosts:
        raise NotAllowed(
            f"the service does not serve the host {host!r}; add it to the setting allowed_hosts"
        )
    if scope["method"] in SAFE:
        return
    origin = headers.get("origin")
    if headers.get("sec-fetch-site", "").lower() in _ELSEWHERE:
        raise NotAllowed(
            "Sec-Fetch-Site shows that another site sent the request; send it from the "
            "dashboard's own pages"
        )
    if origin and origin.partition("://")[2].lower() != host.lower():
        raise NotAllowed(
            f"Origin {origin!r} is not {host}; send the request from the dashboard's own pages"
        )


def _name(host: str) -> str:
    """Return the name or address in a Host header, without its port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
