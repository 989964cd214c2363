"""Lists: selectors, pages, versions."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass

from tests.kubernetes.apiserver.core.api import Api
from tests.kubernetes.apiserver.core.kinds import Kind
from tests.kubernetes.apiserver.core.store import Stored
from tests.kubernetes.apiserver.objects.errors import Refused, bad_request, too_large
from tests.kubernetes.apiserver.objects.selectors import Matches, both, by_fields, by_labels


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list."""

    items: list[Stored]
    version: int
    more: str = ""
    #: How many follow; None: unknown, because a selector chose.
    remaining: int | None = None


def selection(kind: Kind, query: Mapping[str, str]) -> Matches | None:
    """Return what a request selects; None: everything."""
    labels = by_labels(query.get("labelSelector", ""))
    text = query.get("fieldSelector", "")
    try:
        return both(labels, by_fields(text, kind.selectable))
    except Refused as refused:
        where = f"/{kind.version}" if not kind.group else f"{kind.group}/{kind.version}"
        raise bad_request(
            f'Unable to find "{where}, Resource={kind.plural}" that match label selector '
            f'"{query.get("labelSelector", "")}", field selector "{text}": {refused.message}'
        ) from refused


def version_of(api: Api, query: Mapping[str, str]) -> int | None:
    """Return the version that a request names; None: any. Raises 504 for one yet to come."""
    text = query.get("resourceVersion", "")
    if text in ("", "0"):
        return None
    if not text.isdigit():
        raise bad_request(f'invalid resource version "{text}": strconv.ParseUint: invalid syntax')
    version = int(text)
    if version > api.store.version:
        raise too_large(version, api.store.version)
    return version


def listed(api: Api, kind: Kind, namespace: str, query: Mapping[str, str]) -> Page:
    """Return the page that a request asks for."""
    matches = selection(kind, query)
    limit = int(query.get("limit") or 0)
    token = query.get("continue", "")
    if token:
        version, after = _opened(token)
    else:
        wanted = version_of(api, query)
        exact = query.get("resourceVersionMatch") == "Exact" and wanted is not None
        version, after = (wanted if exact and wanted else api.store.version), ("", "")
    items = (
        list(api.store.all_of(kind.resource, namespace))
        if version == api.store.version
        else [
            stored
            for stored in api.store.as_of(kind.resource, version)
            if not namespace or stored.key[0] == namespace
        ]
    )
    if token:
        items = [stored for stored in items if stored.key > after]
    if matches is not None:
        items = [stored for stored in items if matches(stored.obj)]
    if not limit or len(items) <= limit:
        return Page(items, version)
    rest = None if matches is not None else len(items) - limit
    return Page(items[:limit], version, _token(version, items[limit - 1].key), rest)


def _token(version: int, key: tuple[str, str]) -> str:
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": "/".join(key) + "\0"})
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _opened(token: str) -> tuple[int, tuple[str, str]]:
    try:
        told = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, _, name = told["start"].rstrip("\0").rpartition("/")
        return int(told["rv"]), (namespace, name)
    except (ValueError, KeyError) as error:
        raise bad_request("continue key is not valid: illegal base64 data") from error


def encoded(kind: Kind, page: Page) -> bytes:
    """Return a list as it goes over the wire."""
    metadata: dict[str, object] = {"resourceVersion": str(page.version)}
    if page.more or kind.custom:
        metadata["continue"] = page.more
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    head = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata}
    items = b",".join(item(kind, stored) for stored in page.items)
    return json.dumps(head).encode()[:-1] + b',"items":[' + items + b"]}"


def item(kind: Kind, stored: Stored) -> bytes:
    """Return one object of a list: those of built-in kinds do not tell their kind there."""
    raw = shown(kind, stored)
    prefix = _prefix(kind)
    if kind.custom or not raw.startswith(prefix):
        return raw
    return b"{" + raw[len(prefix) :]


def _prefix(kind: Kind) -> bytes:
    return f'{{"kind":"{kind.kind}","apiVersion":"{kind.api_version}",'.encode()


def shown(kind: Kind, stored: Stored) -> bytes:
    """Return an object as a version of its kind shows it."""
    if stored.obj.get("apiVersion") == kind.api_version:
        return stored.raw
    return Stored(kind.shown(stored.obj), stored.key, stored.version).raw
