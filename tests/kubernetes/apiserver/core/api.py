"""The verbs on objects, in memory: what HTTP, the kubelet and the scheduler all call.

One thread at a time; everything raises ``Refused`` as a real server refuses.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.kubernetes.apiserver.core import (
    admission,
    limits,
    pods,
    policies,
    quota,
    removal,
    resizing,
)
from tests.kubernetes.apiserver.core.builtins import CORE, GROUPED, NAMESPACES, REVIEWS
from tests.kubernetes.apiserver.core.kinds import Json, Kind, Kinds, from_definition
from tests.kubernetes.apiserver.core.store import Key, Store, Stored
from tests.kubernetes.apiserver.documents.models import modelled
from tests.kubernetes.apiserver.objects import ownership
from tests.kubernetes.apiserver.objects.errors import (
    Cause,
    Refused,
    already_exists,
    bad_request,
    conflict,
    invalid,
    not_found,
)
from tests.kubernetes.apiserver.objects.names import generated
from tests.kubernetes.apiserver.objects.ownership import Entries, Manager

#: Metadata that only the server writes.
_SERVERS = ("uid", "creationTimestamp", "generation", "selfLink", "managedFields",
            "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """How a write is meant."""

    manager: str = "unknown"
    dry_run: bool = False
    #: ``Strict``, ``Warn`` or ``Ignore``.
    validation: str = "Warn"
    force: bool = False
    #: Collects what the answer's ``Warning`` headers say.
    warnings: list[str] = field(default_factory=list)


class Api:
    """An API server without a network."""

    def __init__(
        self,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        history: int = 20_000,
        bare: bool = False,
    ) -> None:
        """``bare``: no controllers run beside it."""
        self.bare = bare
        #: False: as 1.33 resizes pods. It lowers no memory, and leaves it to nodes what they hold.
        self.resizes_as_latest = True
        #: Webhooks that are asked about every write, by name.
        self.webhooks: dict[str, policies.Webhook] = {}
        self.kinds = Kinds()
        self.store = Store(history)
        self._now = now
        #: Requests that a definition installed over HTTP still answers with 429.
        self.warming: dict[tuple[str, str], int] = {}
        self.warmup_requests = 0
        for kind in (*CORE, *GROUPED, *REVIEWS):
            self.kinds.add(modelled(kind))
        for name in NAMESPACES:
            self.create(self._core("namespaces"), "", {"metadata": {"name": name}}, Ask())

    def _core(self, plural: str) -> Kind:
        kind = self.kinds.find("", "v1", plural)
        assert kind is not None
        return kind

    def timestamp(self, later_seconds: int = 0) -> str:
        """Return the time as objects tell it."""
        at = self._now() + timedelta(seconds=later_seconds)
        return at.strftime("%Y-%m-%dT%H:%M:%SZ")

    def seconds(self) -> float:
        """Return the time in seconds since the epoch."""
        return self._now().timestamp()

    def install(self, definition: Mapping[str, Any]) -> None:
        """Serve the kinds of a CustomResourceDefinition."""
        kind = self.kinds.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        assert kind is not None
        warmup, self.warmup_requests = self.warmup_requests, 0
        self.create(kind, "", definition, Ask(manager="brain-tests"))
        self.warmup_requests = warmup

    def get(self, kind: Kind, namespace: str, name: str) -> Stored:
        """Return an object."""
        found = self.store.find(kind.resource, (namespace, name))
        if found is None:
            raise not_found(kind.plural, kind.group, name)
        return found

    # Writing.

    def create(self, kind: Kind, namespace: str, body: Mapping[str, Any], ask: Ask) -> Stored:
        """Make an object."""
        self._check_target(kind, namespace, body)
        metadata = {**(body.get("metadata") or {})}
        if metadata.get("resourceVersion"):
            raise Refused(500, "", "resourceVersion should not be set on objects to be created")
        for name in _SERVERS:
            metadata.pop(name, None)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = generated(metadata["generateName"])
        if kind.namespaced:
            metadata["namespace"] = namespace
        obj = admission.cleaned(
            kind, kind.stored({**body, "metadata": metadata}), ask.validation, ask.warnings
        )
        reset = ("status",) if kind.has_status else ()
        now = self.timestamp()
        entries = ownership.updated(
            {}, obj, kind.shape, self._manager(kind, ask, "Update", ""), now, reset
        )
        return self._insert(kind, obj, entries, ask)

    def _insert(self, kind: Kind, obj: Json, entries: Entries, ask: Ask) -> Stored:
        metadata = obj["metadata"]
        key: Key = (metadata.get("namespace", ""), metadata.get("name", ""))
        if not key[1]:
            cause = Cause(
                "FieldValueRequired",
                "Required value: name or generateName is required",
                "metadata.name",
            )
            raise invalid(kind.kind, kind.group, "", [cause])
        if kind.resource == ("", "pods") and obj.get("spec", {}).get("containers"):
            obj = limits.filled(self.store, obj)
            metadata = obj["metadata"]
        obj = admission.created(kind, obj, self._priority)
        if kind.resource == ("", "nodes") and self.bare:
            obj = admission.not_ready(obj)
        metadata = {
            **metadata,
            "uid": str(uuid.uuid4()),
            "creationTimestamp": self.timestamp(),
            "managedFields": ownership.written(entries),
        }
        if kind.counts_generation:
            metadata["generation"] = 1
        obj = {**obj, "metadata": metadata}
        if found := admission.causes(kind, None, obj):
            raise invalid(kind.kind, kind.group, key[1], found)
        if self.store.find(kind.resource, key) is not None:
            raise already_exists(kind.plural, kind.group, key[1])
        policies.check(self.store, self.webhooks, kind, None, obj, ask.warnings)
        if kind.resource == ("", "pods"):
            limits.check(self.store, obj)
            quota.check(self.store, obj, counted=not self.bare)
        if ask.dry_run:
            return Stored(obj, key, 0)
        stored = self.store.put(kind.resource, key, obj)
        self._after_create(kind, stored)
        return stored

    def _after_create(self, kind: Kind, stored: Stored) -> None:
        if kind.plural == "namespaces" and not self.bare:
            account = {"metadata": {"name": "default"}}
            self.create(self._core("serviceaccounts"), stored.key[1], account, Ask())
        elif kind.plural == "customresourcedefinitions":
            self._serve(stored.obj)
            self.store.put(
                kind.resource, stored.key, admission.established(stored.obj, self.timestamp())
            )

    def _serve(self, definition: Json) -> None:
        spec = definition["spec"]
        self.kinds.remove(spec["group"], spec["names"]["plural"])
        for kind in from_definition(definition):
            self.kinds.add(kind)
            self.warming[kind.resource] = self.warmup_requests

    def replace(
        self, kind: Kind, namespace: str, name: str, body: Mapping[str, Any], ask: Ask, door: str
    ) -> tuple[Stored, bool]:
        """Put ``body`` in an object's place; returns it and whether it is new."""
        self._check_target(kind, namespace, body)
        named = (body.get("metadata") or {}).get("name")
        if named and named != name:
            raise bad_request(
                f"the name of the object ({named}) does not match the name on the URL ({name})"
            )
        stored = self.store.find(kind.resource, (namespace, name))
        if stored is None and kind.put_creates and not door:
            return self.create(kind, namespace, body, ask), True
        if stored is None:
            raise not_found(kind.plural, kind.group, name)
        version = (body.get("metadata") or {}).get("resourceVersion")
        if not version and (kind.custom or kind.group == "apiextensions.k8s.io"):
            cause = Cause(
                "FieldValueInvalid",
                "Invalid value: 0: must be specified for an update",
                "metadata.resourceVersion",
            )
            raise invalid(kind.kind, kind.group, name, [cause])
        return self.write(kind, stored, kind.stored(body), ask, door), False

    def apply(
        self, kind: Kind, namespace: str, name: str, config: Json, ask: Ask, door: str
    ) -> tuple[Stored, bool]:
        """Apply a configuration; returns the object and whether it is new."""
        self._check_target(kind, namespace, config)
        metadata = {**(config.get("metadata") or {}), "name": name}
        if kind.namespaced:
            metadata["namespace"] = namespace
        config = kind.stored({**config, "metadata": metadata})
        stored = self.store.find(kind.resource, (namespace, name))
        manager = self._manager(kind, ask, "Apply", door)
        live = stored.obj if stored else None
        # Unknown fields are nobody's: they go before ownership is told.
        known = admission.known(kind, config, ask.validation, ask.warnings)
        obj, entries = ownership.applied(
            live, known, kind.shape, manager, ask.force, self.timestamp()
        )
        if stored is not None:
            return self.write(kind, stored, obj, ask, door, entries), False
        if metadata.get("uid"):
            raise conflict(
                kind.plural,
                kind.group,
                name,
                f"uid mismatch: the provided object specified uid {metadata['uid']}, and no "
                "existing object was found",
            )
        obj = admission.cleaned(kind, obj, "Ignore", ask.warnings)
        return self._insert(kind, obj, entries, ask), True

    def write(
        self,
        kind: Kind,
        stored: Stored,
        new: Mapping[str, Any],
        ask: Ask,
        door: str = "",
        entries: Entries | None = None,
    ) -> Stored:
        """Put ``new`` in the place of ``stored`` through a door (main: empty)."""
        old = stored.obj
        name = stored.key[1]
        self._check_identity(kind, stored, new.get("metadata") or {})
        obj = admission.cleaned(kind, new, ask.validation, ask.warnings, old)
        if kind.resource == ("", "pods") and not door:
            obj["spec"] = pods.tolerant(obj["spec"])
        metadata = {k: v for k, v in obj["metadata"].items() if k not in _SERVERS}
        metadata |= {k: old["metadata"][k] for k in _SERVERS if k in old["metadata"]}
        obj["metadata"] = metadata
        reset = _closed(kind, old, obj, door)
        if entries is None:
            manager = self._manager(kind, ask, "Update", door)
            entries = ownership.updated(old, obj, kind.shape, manager, self.timestamp(), reset)
        for field_name in reset:
            obj.pop(field_name, None)
            if field_name in old:
                obj[field_name] = old[field_name]
        if kind.counts_generation and _spec_changed(kind, old, obj):
            obj["metadata"] = {**obj["metadata"], "generation": old["metadata"]["generation"] + 1}
        found = admission.causes(kind, old, obj, door)
        if door == "resize" and not self.resizes_as_latest:
            found += resizing.lowered(old, obj)
        if found:
            raise invalid(kind.kind, kind.group, name, found)
        self._admit(kind, old, obj, ask, door)
        obj["metadata"] = {**obj["metadata"], "managedFields": ownership.written(entries)}
        if _same(old, obj):
            return stored
        if ask.dry_run:
            return Stored(obj, stored.key, stored.version)
        return self._keep(kind, stored, obj)

    def _admit(self, kind: Kind, old: Json, obj: Json, ask: Ask, door: str) -> None:
        if door == "resize":
            if self.resizes_as_latest:
                resizing.check(self.store, old, obj)
            limits.check(self.store, obj)
            quota.check(self.store, obj, old, counted=not self.bare)
        elif not door:
            policies.check(self.store, self.webhooks, kind, old, obj, ask.warnings)

    def _keep(self, kind: Kind, stored: Stored, obj: Json) -> Stored:
        metadata = obj["metadata"]
        leaving = "deletionTimestamp" in metadata and not metadata.get("finalizers")
        if leaving and not metadata.get("deletionGracePeriodSeconds"):
            return removal.finish(self, kind.resource, stored, obj)
        kept = self.store.put(kind.resource, stored.key, obj)
        if kind.plural == "customresourcedefinitions":
            self._serve(obj)
        return kept

    def _check_target(self, kind: Kind, namespace: str, body: Mapping[str, Any]) -> None:
        """Refuse what does not belong where it was sent."""
        if kind.custom and not body.get("kind"):
            # A built-in kind is known by its path.
            raise bad_request(
                f"the object provided is unrecognized (must be of type {kind.kind}): "
                "Object 'Kind' is missing"
            )
        told = (body.get("apiVersion", kind.api_version), body.get("kind", kind.kind))
        if told != (kind.api_version, kind.kind):
            raise bad_request(
                f"the object provided is unrecognized (must be of type {kind.kind}): "
                f"no kind {told[1]!r} is registered for version {told[0]!r} here"
            )
        inside = (body.get("metadata") or {}).get("namespace")
        if kind.namespaced and inside and inside != namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        if not kind.namespaced:
            return
        home = self.store.find(("", "namespaces"), ("", namespace))
        if home is None:
            raise not_found("namespaces", "", namespace)
        name = (body.get("metadata") or {}).get("name", "")
        leaving = "deletionTimestamp" in home.obj["metadata"]
        if leaving and self.store.find(kind.resource, (namespace, name)) is None:
            raise _terminating(kind, namespace, name)

    def _check_identity(self, kind: Kind, stored: Stored, metadata: Mapping[str, Any]) -> None:
        """Refuse a write that was made against another version or another object."""
        version, uid = metadata.get("resourceVersion"), metadata.get("uid")
        if version and version != str(stored.version):
            raise conflict(kind.plural, kind.group, stored.key[1])
        if uid and uid != stored.uid:
            why = (
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {stored.uid}"
            )
            raise conflict(kind.plural, kind.group, stored.key[1], why)
        if metadata.get("name", stored.key[1]) != stored.key[1]:
            message = f'Invalid value: "{metadata["name"]}": field is immutable'
            cause = Cause("FieldValueInvalid", message, "metadata.name")
            raise invalid(kind.kind, kind.group, stored.key[1], [cause])

    def _manager(self, kind: Kind, ask: Ask, operation: str, door: str) -> Manager:
        return Manager(
            name=ask.manager, operation=operation, api_version=kind.api_version, subresource=door
        )

    def _priority(self, name: str) -> tuple[int, str]:
        """Return the value of a priority class, and whether it preempts."""
        if not name:
            return 0, "PreemptLowerPriority"
        found = self.store.find(("scheduling.k8s.io", "priorityclasses"), ("", name))
        if found is None:
            raise Refused(
                403, "Forbidden", f"pods is forbidden: no PriorityClass with name {name} was found"
            )
        return found.obj.get("value", 0), found.obj.get("preemptionPolicy", "PreemptLowerPriority")


def _closed(kind: Kind, old: Json, obj: Json, door: str) -> tuple[str, ...]:
    """Return the top-level fields that a door does not write."""
    if door == "status":
        fields = (old.keys() | obj.keys()) - {"status", "kind", "apiVersion"}
        return tuple(fields if kind.custom else fields - {"metadata"})
    return ("status",) if kind.has_status else ()


def _spec_changed(kind: Kind, old: Json, new: Json) -> bool:
    if not kind.custom:
        return bool(old.get("spec") != new.get("spec"))
    outside = {"metadata", "kind", "apiVersion"} | ({"status"} if kind.has_status else set())
    return any(old.get(k) != new.get(k) for k in (old.keys() | new.keys()) - outside)


def _same(old: Json, new: Json) -> bool:
    """Return whether nothing changed but the times of ``managedFields``."""
    if any(old.get(k) != new.get(k) for k in (old.keys() | new.keys()) - {"metadata"}):
        return False
    before, after = dict(old["metadata"]), dict(new["metadata"])
    owners = [
        [{k: v for k, v in entry.items() if k != "time"} for entry in one.pop("managedFields", ())]
        for one in (before, after)
    ]
    return before == after and owners[0] == owners[1]


def _terminating(kind: Kind, namespace: str, name: str) -> Refused:
    refused = Refused(
        403,
        "Forbidden",
        f'{kind.plural} "{name}" is forbidden: unable to create new content in namespace '
        f"{namespace} because it is being terminated",
        {
            "name": name,
            "kind": kind.plural,
            "causes": [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {namespace} is being terminated",
                    "field": "metadata.namespace",
                }
            ],
        },
    )
    return refused
