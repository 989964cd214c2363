"""Writes an object's status if it changed; builds conditions as Kubernetes defines them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from scaler.kubernetes.runtime.cluster.kind import Kind, Object, key_of, version_of

_TRUTH = {True: "True", False: "False", None: "Unknown"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusCondition:
    """One condition of an object: True, False or unknown (None)."""

    type: str
    status: bool | None
    #: One word in CamelCase, for programs.
    reason: str
    #: A sentence for people: the finding and its remedy.
    message: str = ""


class StatusWriter(Protocol):
    """The methods of ``Cluster`` that writing status needs."""

    def merge_status(
        self, kind: Kind, namespace: str, name: str, patch: Object
    ) -> dict[str, Any]: ...


def conditions(
    known: Iterable[Mapping[str, Any]] | None,
    wanted: Sequence[StatusCondition],
    *,
    generation: int,
    now: datetime,
) -> list[dict[str, Any]]:
    """Return an object's conditions: those in ``wanted``, found for its ``generation``, replace
    known ones.

    ``known`` conditions of other types stay. The transition time changes only if the status does.

    >>> from datetime import UTC
    >>> ready = StatusCondition(type="Ready", status=True, reason="AllRunning")
    >>> first = conditions(None, [ready], generation=1, now=datetime(2026, 1, 1, tzinfo=UTC))
    >>> again = conditions(first, [ready], generation=2, now=datetime(2026, 1, 2, tzinfo=UTC))
    >>> again[0]["lastTransitionTime"], again[0]["observedGeneration"]
    ('2026-01-01T00:00:00Z', 2)
    """
    found = {str(each["type"]): dict(each) for each in known or ()}
    for condition in wanted:
        before = found.get(condition.type, {})
        status = _TRUTH[condition.status]
        same = before.get("status") == status
        found[condition.type] = {
            "type": condition.type,
            "status": status,
            "observedGeneration": generation,
            "lastTransitionTime": before["lastTransitionTime"] if same else instant(now),
            "reason": condition.reason,
            "message": condition.message,
        }
    return list(found.values())


def instant(at: datetime) -> str:
    """Format an instant as the API's Time: whole seconds, UTC."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def read_instant(said: object) -> datetime | None:
    """Return the instant of the API's Time; None if the text is no time, or has no time zone.

    >>> read_instant("2026-01-01T00:00:00Z") == read_instant("2026-01-01T01:00:00+01:00")
    True
    >>> read_instant("2026-01-01T00:00:00") is read_instant("noon") is None
    True
    """
    if not isinstance(said, str):
        return None
    try:
        found = datetime.fromisoformat(said.replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def difference(known: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that turns ``known`` into ``wanted``; empty if they are equal.

    >>> difference({"a": 1, "b": {"c": 1, "d": [1]}}, {"b": {"c": 2, "d": [1]}})
    {'a': None, 'b': {'c': 2}}
    """
    patch: dict[str, Any] = {name: None for name in known if name not in wanted}
    for name, value in wanted.items():
        before = known.get(name)
        if value is None and before is None:
            # The API server treats a null as absent.
            continue
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := difference(before, value):
                patch[name] = inner
        elif value != before or name not in known:
            patch[name] = value
    return patch


def write_status(
    cluster: StatusWriter, kind: Kind, obj: Object, status: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Write the status of ``obj``; return None without a request if it is unchanged.

    Pass the returned object to ``Store.learn``.

    Raises:
        Conflict: ``obj`` is not the newest version; read the object again.
    """
    patch = difference(obj.get("status") or {}, status)
    if not patch:
        return None
    key = key_of(obj)
    body = {"metadata": {"resourceVersion": version_of(obj)}, "status": patch}
    return cluster.merge_status(kind, key.namespace, key.name, body)
