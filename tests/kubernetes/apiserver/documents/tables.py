"""What ``kubectl get`` prints: ``meta.k8s.io/v1 Table``."""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tests.kubernetes.apiserver.core.kinds import Column, Json, Kind
from tests.kubernetes.apiserver.core.reading import Page
from tests.kubernetes.apiserver.core.store import Stored
from tests.kubernetes.apiserver.documents.columns import BY_KIND

MEDIA = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL_MEDIA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

_NAME = Column(
    "Name",
    format="name",
    path=".metadata.name",
    description="Name must be unique within a namespace. Is required when creating resources, "
    "although some resources may allow a client to request the generation of an appropriate name "
    "automatically. Name is primarily intended for creation idempotence and configuration "
    "definition. Cannot be updated. More info: "
    "https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
)
_AGE = Column("Age", type="date", path=".metadata.creationTimestamp")


def table(kind: Kind, page: Page, include: str, now: float, *, head: bool = True) -> Json:
    """Return a list as a table.

    ``include``: ``Object``, ``Metadata`` or ``None``. ``now``: seconds since the epoch.
    """
    columns = columns_of(kind)
    metadata: Json = {"resourceVersion": str(page.version)}
    if page.more:
        metadata["continue"] = page.more
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [_definition(column) for column in columns] if head else [],
        "rows": [_row(columns, kind.shown(stored.obj), include, now) for stored in page.items],
    }


def of_one(kind: Kind, stored: Stored, include: str, now: float, *, head: bool = True) -> Json:
    """Return one object as a table."""
    return table(kind, Page([stored], stored.version), include, now, head=head)


def columns_of(kind: Kind) -> tuple[Column, ...]:
    """Return the columns of a kind."""
    if kind.custom:
        return (_NAME, *kind.columns)
    return BY_KIND.get(kind.plural, (_NAME, _AGE))


def _definition(column: Column) -> Json:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _row(columns: tuple[Column, ...], obj: Json, include: str, now: float) -> Json:
    cells = [_told(column, obj, now) for column in columns]
    row: Json = {"cells": cells}
    if include == "Object":
        row["object"] = obj
    elif include != "None":
        row["object"] = partial(obj)
    return row


def _told(column: Column, obj: Json, now: float) -> Any:
    value = column.cell(obj) if column.cell is not None else cell(obj, column.path)
    if column.type == "date":
        return age(value, now)
    if isinstance(value, (dict, list)) or (isinstance(value, bool) and column.type == "string"):
        return json.dumps(value)
    return value


def age(timestamp: str | None, now: float) -> str:
    """Return how long ago something was, as people read it: ``45s``, ``3m20s``, ``5h``, ``2d``."""
    if not timestamp:
        return "<unknown>"
    seconds = int(now - datetime.fromisoformat(timestamp).timestamp())
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{max(seconds, 0)}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{hours}h" if hours < 48 else f"{days}d"


def partial(obj: Mapping[str, Any]) -> Json:
    """Return an object's metadata alone."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }


def partial_list(page: Page) -> Json:
    """Return a list of metadata alone."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": str(page.version), "continue": page.more},
        "items": [partial(stored.obj) for stored in page.items],
    }


_STEP = re.compile(
    r"""\.?([A-Za-z0-9_-]+)|\[\?\(@\.([\w.-]+)\s*==\s*["'](.*?)["']\)\]|\[(\d+|\*)\]"""
)


def cell(obj: Mapping[str, Any], path: str) -> Any:
    """Return what a JSONPath finds: fields, ``[0]``, ``[?(@.type=="X")]``; None: nothing."""
    found: Any = obj
    for field, key, value, index in _STEP.findall(path.replace("\\.", "\0")):
        if field:
            found = found.get(field.replace("\0", ".")) if isinstance(found, Mapping) else None
        elif key:
            items = found if isinstance(found, list) else []
            found = next((item for item in items if str(item.get(key)) == value), None)
        else:
            position = 0 if index == "*" else int(index)
            items = found if isinstance(found, list) else []
            found = items[position] if position < len(items) else None
    return found
