"""What ``kubectl get`` prints: ``meta.k8s.io/v1 Table``."""

import re
from collections.abc import Mapping
from typing import Any

from tests.kubernetes.apiserver.kinds import Column, Json, Kind
from tests.kubernetes.apiserver.reading import Page
from tests.kubernetes.apiserver.store import Stored

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
_AGE = Column("Age", path=".metadata.creationTimestamp", description="CreationTimestamp")


def table(kind: Kind, page: Page, include: str, _now: Any = None, *, head: bool = True) -> Json:
    """Return a list as a table; ``include``: ``Object``, ``Metadata`` or ``None``."""
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
        "rows": [_row(columns, kind.shown(stored.obj), include) for stored in page.items],
    }


def of_one(kind: Kind, stored: Stored, include: str, *, head: bool = True) -> Json:
    """Return one object as a table."""
    return table(kind, Page([stored], stored.version), include, head=head)


def columns_of(kind: Kind) -> tuple[Column, ...]:
    """Return the columns of a kind."""
    if kind.custom:
        return (_NAME, *kind.columns)
    return kind.columns or (_NAME, _AGE)


def _definition(column: Column) -> Json:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _row(columns: tuple[Column, ...], obj: Json, include: str) -> Json:
    cells = [
        column.cell(obj) if column.cell is not None else cell(obj, column.path)
        for column in columns
    ]
    row: Json = {"cells": cells}
    if include == "Object":
        row["object"] = obj
    elif include != "None":
        row["object"] = partial(obj)
    return row


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
