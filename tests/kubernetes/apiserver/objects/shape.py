"""How lists and maps of an object merge, read from its structural schema."""

from collections.abc import Mapping
from typing import Any

_NONE: Mapping[str, Any] = {}


class Shape:
    """One node of a schema, seen as what merging needs; unknown nodes are plain."""

    __slots__ = ("_children", "_item", "schema")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema
        self._children: dict[str, Shape] = {}
        self._item: Shape | None = None

    def child(self, field: str) -> "Shape":
        """Return the node below ``field``."""
        found = self._children.get(field)
        if found is None:
            below = (self.schema.get("properties") or _NONE).get(field)
            if below is None:
                more = self.schema.get("additionalProperties")
                below = more if isinstance(more, Mapping) else _NONE
            found = self._children[field] = Shape(below)
        return found

    @property
    def item(self) -> "Shape":
        """Return the node of a list's items."""
        if self._item is None:
            self._item = Shape(self.schema.get("items") or _NONE)
        return self._item

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the fields that tell a list's items apart; none: not such a list."""
        if self.schema.get("x-kubernetes-list-type") != "map":
            return ()
        return tuple(self.schema["x-kubernetes-list-map-keys"])

    @property
    def merge_key(self) -> str | None:
        """Return the one field by which a strategic merge patch finds items."""
        declared = self.schema.get("x-kubernetes-patch-merge-key")
        return declared or (self.keys[0] if self.keys else None)

    @property
    def is_set(self) -> bool:
        """Return whether a list's values each have their own owner."""
        return bool(self.schema.get("x-kubernetes-list-type") == "set")

    @property
    def is_atomic_map(self) -> bool:
        """Return whether a map has one owner as a whole."""
        return bool(self.schema.get("x-kubernetes-map-type") == "atomic")

    @property
    def always_there(self) -> bool:
        """Return whether the typed object has this node even where nobody sent it."""
        return bool(self.schema.get("x-always-there"))

    def key_of(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Return what tells ``item`` apart, defaults filled in."""
        properties = self.item.schema.get("properties") or _NONE
        return {
            key: item[key] if key in item else (properties.get(key) or _NONE).get("default")
            for key in self.keys
        }
