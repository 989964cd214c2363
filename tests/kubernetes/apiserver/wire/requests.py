"""One request on objects: which verb, may it, and the bytes of its answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tests.kubernetes.apiserver.core import doors, removal, resizing
from tests.kubernetes.apiserver.core.access import Access, Attributes
from tests.kubernetes.apiserver.core.api import Api, Ask
from tests.kubernetes.apiserver.core.kinds import APPLY, JSON_PATCH, MERGE, STRATEGIC, Json
from tests.kubernetes.apiserver.core.reading import encoded, listed, selection, shown
from tests.kubernetes.apiserver.core.removal import Deletion
from tests.kubernetes.apiserver.core.store import Stored
from tests.kubernetes.apiserver.documents import tables
from tests.kubernetes.apiserver.objects import ownership
from tests.kubernetes.apiserver.objects.errors import (
    Refused,
    bad_request,
    forbidden,
    unsupported_media,
)
from tests.kubernetes.apiserver.objects.patches import json_patched, merged, strategic
from tests.kubernetes.apiserver.wire.routes import Target


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back."""

    code: int
    body: bytes
    media: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What came in."""

    method: str
    target: Target
    query: Mapping[str, str]
    accept: str
    media: str
    body: Any
    manager: str
    user: str

    def permit(self, access: Access, verb: str) -> None:
        """Refuse what the user may not."""
        target = self.target
        wish = Attributes(
            verb=verb,
            group=target.kind.group,
            resource=target.kind.plural,
            namespace=target.namespace,
            name=target.name,
            subresource=target.door,
        )
        if not access.may(self.user, wish):
            raise forbidden(self.user, verb, wish.told, wish.group, target.name, target.namespace)

    def ask(self) -> Ask:
        """Return how a write is meant."""
        return Ask(
            manager=self.manager,
            dry_run="dryRun" in self.query,
            validation=self.query.get("fieldValidation") or "Warn",
            force=self.query.get("force") == "true",
        )


def answered(api: Api, access: Access, asked: Asked) -> Answer:
    """Return the answer; raises ``Refused``."""
    target = asked.target
    if "get" not in target.kind.verbs:
        return _review(api, access, asked)
    asked.permit(access, _verb(asked))
    match asked.method, bool(target.name):
        case "GET", False:
            return _list(api, asked)
        case "GET", True:
            found = api.get(target.kind, target.namespace, target.name)
            return _object(asked, 200, found, now=api.seconds())
        case "POST", False:
            ask = asked.ask()
            made = api.create(target.kind, target.namespace, _mapping(asked.body), ask)
            return _object(asked, 201, made, ask)
        case "POST", True:
            return _door(api, asked)
        case "PUT", True:
            return _put(api, asked)
        case "PATCH", True:
            return _patch(api, asked)
        case "DELETE", True:
            return _delete(api, asked)
        case "DELETE", False:
            return _delete_collection(api, asked)
        case _:
            raise Refused(
                405,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
                {},
            )


def _verb(asked: Asked) -> str:
    named = bool(asked.target.name)
    return {
        "GET": "get" if named else "list",
        "POST": "create",
        "PUT": "update",
        "PATCH": "patch",
        "DELETE": "delete" if named else "deletecollection",
    }.get(asked.method, asked.method.lower())


def _mapping(body: Any) -> Json:
    if not isinstance(body, dict):
        raise bad_request("the object provided is unrecognized: expected an object")
    return body


def _list(api: Api, asked: Asked) -> Answer:
    kind = asked.target.kind
    page = listed(api, kind, asked.target.namespace, asked.query)
    if "as=Table" in asked.accept:
        table = tables.table(
            kind, page, asked.query.get("includeObject", "Metadata"), api.seconds()
        )
        return Answer(200, msgspec.json.encode(table), tables.MEDIA)
    if "as=PartialObjectMetadataList" in asked.accept:
        partial = tables.partial_list(page)
        return Answer(200, msgspec.json.encode(partial), tables.PARTIAL_MEDIA)
    return Answer(200, encoded(kind, page))


def _object(
    asked: Asked, code: int, stored: Stored, ask: Ask | None = None, now: float = 0.0
) -> Answer:
    warnings = tuple(ask.warnings) if ask is not None else ()
    kind = asked.target.kind
    if asked.target.door == "scale":
        return Answer(code, msgspec.json.encode(doors.scale_of(kind, stored)))
    if asked.method == "GET" and "as=Table" in asked.accept:
        table = tables.of_one(kind, stored, asked.query.get("includeObject", "Metadata"), now)
        return Answer(code, msgspec.json.encode(table), tables.MEDIA)
    return Answer(code, shown(kind, stored), warnings=warnings)


def _door(api: Api, asked: Asked) -> Answer:
    target, body = asked.target, _mapping(asked.body)
    stored = api.get(target.kind, target.namespace, target.name)
    match target.door:
        case "binding":
            doors.bind(api, target.kind, stored, body["target"]["name"])
        case "eviction":
            options = body.get("deleteOptions") or {}
            doors.evict(api, target.kind, stored, options, "dryRun" in asked.query)
        case _:
            raise Refused(405, "MethodNotAllowed", "the server does not allow this method", {})
    success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return Answer(201, msgspec.json.encode({**success, "code": 201}))


def _put(api: Api, asked: Asked) -> Answer:
    target, ask = asked.target, asked.ask()
    body = _mapping(asked.body)
    if target.door == "scale":
        stored = api.get(target.kind, target.namespace, target.name)
        return _object(asked, 200, doors.write_scale(api, target.kind, stored, body, ask))
    if target.door == "resize":
        body = resizing.narrowed(api.get(target.kind, target.namespace, target.name).obj, body)
    stored, new = api.replace(
        target.kind, target.namespace, target.name, body, ask, _written(target)
    )
    return _object(asked, 201 if new else 200, stored, ask)


def _written(target: Target) -> str:
    return target.door if target.door in ("status", "resize") else ""


def _patch(api: Api, asked: Asked) -> Answer:
    target, ask, media = asked.target, asked.ask(), asked.media
    kind = target.kind
    if media not in kind.patches:
        raise unsupported_media(kind.patches)
    if media == APPLY:
        stored, new = api.apply(
            kind, target.namespace, target.name, _mapping(asked.body), ask, _written(target)
        )
        return _object(asked, 201 if new else 200, stored, ask)
    stored = api.get(kind, target.namespace, target.name)
    if target.door == "scale":
        scale = _patched(asked, doors.scale_of(kind, stored, missing=0))
        return _object(asked, 200, doors.write_scale(api, kind, stored, scale, ask))
    new_obj = kind.stored(_patched(asked, kind.shown(stored.obj)))
    if target.door == "resize":
        new_obj = resizing.narrowed(stored.obj, new_obj)
    return _object(asked, 200, api.write(kind, stored, new_obj, ask, _written(target)), ask)


def _patched(asked: Asked, obj: Json) -> Json:
    match asked.media:
        case media if media == MERGE:
            result = merged(obj, _mapping(asked.body))
        case media if media == JSON_PATCH:
            result = json_patched(obj, asked.body)
        case media if media == STRATEGIC:
            result = strategic(obj, _mapping(asked.body), asked.target.kind.shape)
        case media:
            raise unsupported_media((media,))
    changed: Json = result
    return changed


def _deletion(asked: Asked) -> Deletion:
    options = asked.body if isinstance(asked.body, dict) else {}
    query = asked.query
    grace = options.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    propagation = options.get("propagationPolicy") or query.get("propagationPolicy")
    if propagation is None:
        propagation = "Orphan" if options.get("orphanDependents") else "Background"
    preconditions = options.get("preconditions") or {}
    return Deletion(
        grace_seconds=None if grace is None else int(grace),
        propagation=propagation,
        uid=preconditions.get("uid"),
        version=preconditions.get("resourceVersion"),
        dry_run="dryRun" in query or bool(options.get("dryRun")),
    )


def _delete(api: Api, asked: Asked) -> Answer:
    target, kind = asked.target, asked.target.kind
    stored, gone = removal.delete(api, kind, target.namespace, target.name, _deletion(asked))
    if not gone or kind.returns_deleted:
        return _object(asked, 200, stored)
    details = {"name": target.name, "kind": kind.plural, "uid": stored.uid}
    if kind.group:
        details["group"] = kind.group
    success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return Answer(200, msgspec.json.encode({**success, "details": details}))


def _delete_collection(api: Api, asked: Asked) -> Answer:
    target = asked.target
    page = listed(api, target.kind, target.namespace, asked.query)
    matches = selection(target.kind, asked.query)
    for stored in page.items:
        current = api.store.find(target.kind.resource, stored.key)
        if current is not None and (matches is None or matches(current.obj)):
            removal.delete(api, target.kind, *stored.key, _deletion(asked))
    return Answer(200, encoded(target.kind, page))


def _review(api: Api, access: Access, asked: Asked) -> Answer:
    kind, body = asked.target.kind, _mapping(asked.body)
    if asked.method != "POST":
        raise Refused(405, "MethodNotAllowed", "the server does not allow this method", {})
    manager = ownership.Manager(
        name=asked.manager, operation="Update", api_version=kind.api_version
    )
    entries = ownership.updated({}, body, kind.shape, manager, api.timestamp())
    metadata = {**(body.get("metadata") or {}), "managedFields": ownership.written(entries)}
    answer = {
        "kind": kind.kind,
        "apiVersion": kind.api_version,
        "metadata": metadata,
        "spec": body.get("spec") or {},
        "status": access.review(asked.user, kind.kind, body),
    }
    return Answer(201, msgspec.json.encode(answer))
