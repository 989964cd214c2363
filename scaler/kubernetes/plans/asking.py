"""Finds who requested a size, from the field manager that the object's managedFields name.

The API server does not record which user wrote an object. It records only the name that each
program gives itself: ``kubectl``, for example, or ``kube-controller-manager`` for an autoscaler. An
annotation of a plan may name a person.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from scaler.kubernetes.pods.identity import OWNER
from scaler.kubernetes.runtime.cluster import Cluster, Kind, Object, key_of


def asker(cluster: Cluster, kind: Kind, obj: Object, field: Sequence[str]) -> str:
    """Return a phrase that names the last program that wrote ``field``, and the object.

    Stores drop the managed fields, so this reads the object from the API server once for each
    request.

    Raises:
        BrainError: the API server no longer has the object, or is unreachable.
    """
    found = cluster.get(kind, obj["metadata"]["namespace"], obj["metadata"]["name"])
    return through(obj, kind, last_writer(found["metadata"].get("managedFields") or (), field))


def author(cluster: Cluster, kind: Kind, obj: Object) -> str:
    """Return a phrase that names an object's author: the person in its annotation, else the program
    that wrote its spec.

    Raises:
        BrainError: the API server no longer has the object, or is unreachable.
    """
    person = (obj["metadata"].get("annotations") or {}).get(OWNER)
    return through(obj, kind, person) if person else asker(cluster, kind, obj, ("spec",))


def through(obj: Object, kind: Kind, who: str) -> str:
    """Return a phrase that names a person or program, and the object through which the request
    came.
    """
    return f"{who} ({kind.kind} {key_of(obj)})"


def last_writer(entries: Sequence[Mapping[str, Any]], field: Sequence[str]) -> str:
    """Return the program that wrote ``field`` last, as the managed fields in ``entries`` name it.

    If none wrote the field, the result is ``somebody``.

    >>> of = {"f:spec": {"f:replicas": {}}}
    >>> known = [{"manager": "kubectl", "time": "2026-01-02T00:00:00Z", "fieldsV1": of},
    ...          {"manager": "vi", "time": "2026-01-01T00:00:00Z", "fieldsV1": of}]
    >>> last_writer(known, ("spec", "replicas")), last_writer(known, ("spec", "suspend"))
    ('kubectl', 'somebody')
    """
    wrote = [each for each in entries if _has(each.get("fieldsV1") or {}, field)]
    newest = max(wrote, key=lambda each: str(each.get("time") or ""), default={})
    return str(newest.get("manager") or "somebody")


def _has(fields: Mapping[str, Any], path: Sequence[str]) -> bool:
    for part in path:
        if f"f:{part}" not in fields:
            return False
        fields = fields[f"f:{part}"]
    return True
