"""Faults and figures over HTTP, for a server that is another process: ``/_control/…``."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.kubernetes.apiserver.wire.http import Http

PREFIX = "/_control/"


def controlled(http: "Http", path: str, wish: dict[str, Any]) -> dict[str, Any]:
    """Carry out one wish: ``answer``, ``slow``, ``cut``, ``clear``, ``expire``, ``traffic``."""
    match path.removeprefix(PREFIX):
        case "answer":
            http.faults.answer(**wish)
        case "slow":
            http.faults.slow(**wish)
        case "cut":
            http.faults.cut(**wish)
        case "clear":
            http.faults.clear()
        case "expire":
            http.end_watches(expire=True)
        case "drop":
            http.end_watches()
        case "reset":
            http.traffic.reset()
    traffic = http.traffic
    return {
        "counts": [[*key, count] for key, count in sorted(traffic.counts.items())],
        "in_flight": traffic.in_flight,
        "most_in_flight": traffic.most_in_flight,
        "watches": traffic.watches,
    }
