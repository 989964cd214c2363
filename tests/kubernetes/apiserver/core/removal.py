"""How objects go: grace, finalizers, owners' garbage, namespaces."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.kubernetes.apiserver.core import pods
from tests.kubernetes.apiserver.core.kinds import Json, Kind
from tests.kubernetes.apiserver.core.store import Key, Resource, Stored
from tests.kubernetes.apiserver.objects.errors import Refused, conflict

if TYPE_CHECKING:
    from tests.kubernetes.apiserver.core.api import Api

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """How a deletion is meant: ``DeleteOptions``."""

    grace_seconds: int | None = None
    #: ``Background``, ``Foreground`` or ``Orphan``.
    propagation: str = "Background"
    uid: str | None = None
    version: str | None = None
    dry_run: bool = False


def delete(api: "Api", kind: Kind, namespace: str, name: str, how: Deletion) -> tuple[Stored, bool]:
    """Delete an object; returns what is left of it, and whether it is gone."""
    stored = api.get(kind, namespace, name)
    _check(kind, stored, how)
    if kind.resource == ("", "namespaces"):
        return _namespace(api, stored, how)
    obj = _with_finalizer(stored.obj, how.propagation)
    grace = pods.grace_seconds(obj, how.grace_seconds) if kind.resource == ("", "pods") else 0
    if how.dry_run:
        return stored, not grace
    if not grace and not obj["metadata"].get("finalizers"):
        if obj["metadata"].get("deletionGracePeriodSeconds"):
            # Who confirms an end brings the time forward first, and watches see it.
            now = {"deletionTimestamp": api.timestamp(0), "deletionGracePeriodSeconds": 0}
            obj = {**obj, "metadata": {**obj["metadata"], **now}}
            stored = api.store.put(kind.resource, stored.key, obj)
        return finish(api, kind.resource, stored, obj, how.propagation), True
    marked = _marked(api, kind, obj, grace)
    if marked != stored.obj:
        stored = api.store.put(kind.resource, stored.key, marked)
    if how.propagation == "Orphan" and not api.bare:
        return _orphaning(api, kind, stored)
    if how.propagation == "Foreground":
        _foreground(api, stored)
        left = api.store.find(kind.resource, stored.key)
        return left or stored, left is None
    return stored, False


def _check(kind: Kind, stored: Stored, how: Deletion) -> None:
    name = stored.key[1]
    if how.uid is not None and how.uid != stored.uid:
        why = (
            f"the UID in the precondition ({how.uid}) does not match the UID in record "
            f"({stored.uid}). The object might have been deleted and then recreated"
        )
        raise conflict(kind.kind, kind.group, name, why)
    if how.version is not None and how.version != str(stored.version):
        why = (
            f"the ResourceVersion in the precondition ({how.version}) does not match the "
            f"ResourceVersion in record ({stored.version}). The object might have been modified"
        )
        raise conflict(kind.kind, kind.group, name, why)


def _with_finalizer(obj: Json, propagation: str) -> Json:
    wanted = {"Foreground": FOREGROUND, "Orphan": ORPHAN}.get(propagation)
    if wanted is None or "deletionTimestamp" in obj["metadata"]:
        return obj
    metadata = obj["metadata"]
    finalizers = [*(metadata.get("finalizers") or ()), wanted]
    return {**obj, "metadata": {**metadata, "finalizers": list(dict.fromkeys(finalizers))}}


def _marked(api: "Api", kind: Kind, obj: Json, grace: int) -> Json:
    """Return ``obj`` as being deleted; a later deletion only shortens the grace."""
    metadata = dict(obj["metadata"])
    if "deletionTimestamp" in metadata:
        if metadata.get("deletionGracePeriodSeconds", 0) <= grace:
            return obj
        metadata["deletionGracePeriodSeconds"] = grace
        return {**obj, "metadata": metadata}
    metadata |= {
        "deletionTimestamp": api.timestamp(grace),
        "deletionGracePeriodSeconds": grace,
    }
    if "generation" in metadata:
        metadata["generation"] += 1
    return {**obj, "metadata": metadata}


def finish(
    api: "Api", resource: Resource, stored: Stored, obj: Json, propagation: str = "Background"
) -> Stored:
    """Remove an object for good, and what hangs on it."""
    gone = api.store.remove(resource, stored.key, obj)
    if resource == ("apiextensions.k8s.io", "customresourcedefinitions"):
        _unserve(api, obj)
    if api.bare:
        return gone
    uid = stored.uid
    orphaned = propagation == "Orphan"
    for other, dependent in api.store.dependents(uid):
        current = api.store.find(other, dependent.key)
        if current is not None:
            _let_go(api, other, current, uid, orphaned)
    for reference in obj["metadata"].get("ownerReferences") or ():
        owner = api.store.by_uid(reference["uid"])
        if owner is not None and FOREGROUND in (owner[1].obj["metadata"].get("finalizers") or ()):
            _release(api, *owner)
    if stored.key[0]:
        _emptied(api, stored.key[0])
    return gone


def _let_go(api: "Api", resource: Resource, stored: Stored, uid: str, orphaned: bool) -> None:
    """Collect a dependent whose owner is gone, unless another owner lives."""
    metadata = stored.obj["metadata"]
    others = [one for one in metadata["ownerReferences"] if one["uid"] != uid]
    alive = [one for one in others if api.store.by_uid(one["uid"]) is not None]
    if orphaned or alive:
        left = others if orphaned else alive
        kept = {k: v for k, v in metadata.items() if k != "ownerReferences"}
        if left:
            kept["ownerReferences"] = left
        api.store.put(resource, stored.key, {**stored.obj, "metadata": kept})
        return
    collect(api, resource, stored.key)


def _orphaning(api: "Api", kind: Kind, stored: Stored) -> tuple[Stored, bool]:
    """Free the dependents first, then let their owner go: who watches sees it in this order."""
    for other, dependent in api.store.dependents(stored.uid):
        _let_go(api, other, dependent, stored.uid, orphaned=True)
    metadata = stored.obj["metadata"]
    left = [one for one in metadata.get("finalizers") or () if one != ORPHAN]
    kept = {key: value for key, value in metadata.items() if key != "finalizers"}
    obj = {**stored.obj, "metadata": {**kept, **({"finalizers": left} if left else {})}}
    if left:
        return api.store.put(kind.resource, stored.key, obj), False
    return finish(api, kind.resource, stored, obj), True


def collect(api: "Api", resource: Resource, key: Key, propagation: str = "Background") -> None:
    """Delete as the garbage collector does."""
    kind = next((kind for kind in api.kinds.all() if kind.resource == resource), None)
    if kind is not None and api.store.find(resource, key) is not None:
        delete(api, kind, *key, Deletion(propagation=propagation))


def _foreground(api: "Api", owner: Stored) -> None:
    """Delete the dependents first, then release their owner."""
    for resource, dependent in api.store.dependents(owner.uid):
        if "deletionTimestamp" not in dependent.obj["metadata"]:
            collect(api, resource, dependent.key, "Foreground")
    found = api.store.by_uid(owner.uid)
    if found is not None:
        _release(api, *found)


def _release(api: "Api", resource: Resource, owner: Stored) -> None:
    """Let an owner go whose blocking dependents are gone."""
    for _, dependent in api.store.dependents(owner.uid):
        references = dependent.obj["metadata"]["ownerReferences"]
        if any(one["uid"] == owner.uid and one.get("blockOwnerDeletion") for one in references):
            return
    metadata = owner.obj["metadata"]
    finalizers = [one for one in metadata.get("finalizers") or () if one != FOREGROUND]
    kept = {k: v for k, v in metadata.items() if k != "finalizers"}
    if finalizers:
        kept["finalizers"] = finalizers
    obj = {**owner.obj, "metadata": kept}
    if finalizers or kept.get("deletionGracePeriodSeconds"):
        api.store.put(resource, owner.key, obj)
    else:
        finish(api, resource, owner, obj)


def _namespace(api: "Api", stored: Stored, how: Deletion) -> tuple[Stored, bool]:
    if how.dry_run:
        return stored, False
    name = stored.key[1]
    if name in ("default", "kube-system", "kube-public"):
        raise Refused(
            403, "Forbidden", f'namespaces "{name}" is forbidden: this namespace may not be deleted'
        )
    if "deletionTimestamp" not in stored.obj["metadata"]:
        metadata = {**stored.obj["metadata"], "deletionTimestamp": api.timestamp()}
        status = {**stored.obj.get("status", {}), "phase": "Terminating"}
        obj = {**stored.obj, "metadata": metadata, "status": status}
        stored = api.store.put(("", "namespaces"), stored.key, obj)
    if api.bare:
        return stored, False
    for resource in api.store.resources():
        for inside in list(api.store.all_of(resource, name)):
            collect(api, resource, inside.key)
    _emptied(api, name)
    return stored, False


def _emptied(api: "Api", name: str) -> None:
    """Let a namespace go that is being deleted and has nothing inside any more."""
    home = api.store.find(("", "namespaces"), ("", name))
    if home is None or "deletionTimestamp" not in home.obj["metadata"]:
        return
    inside = (True for resource in api.store.resources() for _ in api.store.all_of(resource, name))
    if next(inside, None) is None:
        api.store.remove(("", "namespaces"), home.key, home.obj)


def _unserve(api: "Api", definition: Mapping[str, Any]) -> None:
    spec = definition["spec"]
    resource = (spec["group"], spec["names"]["plural"])
    for stored in list(api.store.all_of(resource)):
        finish(api, resource, stored, stored.obj)
    api.kinds.remove(*resource)
