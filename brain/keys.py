"""Keys of documents, which are camelCase, and the fields that they stand for."""

import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from brain.errors import UnknownField
from brain.spelling import meant


@lru_cache(maxsize=1024)
def camel(name: str) -> str:
    """``processes_per_replica`` -> ``processesPerReplica``; ``global_size`` -> ``globalSize``."""
    head, *rest = name.split("_")
    return head + "".join(word.title() for word in rest)


def known_fields(data: object, kind: Any, spell: Callable[[str], str]) -> object:
    """Return ``data`` with field names in place of the keys that ``spell`` made of them.

    Raises:
        UnknownField: a key is unknown; the message names the nearest known one.
    """

    def read(value: object, kind_: Any, path: str) -> object:
        inner = dataclass_in(kind_)
        if not isinstance(value, Mapping):
            return value
        if inner is None:
            values = values_of(kind_)
            return {key: read(one, values, f"{path}{key}.") for key, one in value.items()}
        hints = hints_of(inner)
        known = {spell(field.name): field.name for field in fields(inner)}
        for key in value:
            if key not in known:
                near = meant(key, [f"{path}{name}" for name in known], field_paths(kind, spell))
                hint = f"; did you mean {near}?" if near else f"; known: {', '.join(known)}"
                raise UnknownField(f"{path}{key} is not a known field{hint}", field=f"{path}{key}")
        return {
            known[key]: read(one, hints[known[key]], f"{path}{key}.") for key, one in value.items()
        }

    return read(data, kind, "")


def field_paths(kind: Any, spell: Callable[[str], str] = camel, path: str = "") -> Iterator[str]:
    """Yield every field of a kind of document with its path; ``NAME`` is a key that users chose."""
    if (values := values_of(kind)) is not None and dataclass_in(kind) is None:
        yield from field_paths(values, spell, f"{path}NAME.")
    elif (inner := dataclass_in(kind)) is not None:
        hints = hints_of(inner)
        for field in fields(inner):
            yield f"{path}{spell(field.name)}"
            yield from field_paths(hints[field.name], spell, f"{path}{spell(field.name)}.")


def camel_keys(data: Any, kind: type) -> Any:
    """Return a plain value of the dataclass ``kind`` with camelCase names of its fields."""
    if not isinstance(data, dict):
        return data
    found, names = {}, _camel_names(kind)
    for name, value in data.items():
        key, rename = names[name]
        found[key] = value if rename is None else rename(value)
    return found


@cache
def _camel_names(kind: type) -> Mapping[str, tuple[str, Callable[[Any], Any] | None]]:
    """Return the camelCase name of each field of a dataclass, and a function that renames the
    fields in the field's value; None if the value has no fields.

    Types are inspected only once, because the desired state of a pool has a document of each job.
    """
    return {name: (camel(name), _renaming(hint)) for name, hint in hints_of(kind).items()}


def _renaming(kind: Any) -> Callable[[Any], Any] | None:
    if (inner := dataclass_in(kind)) is not None:
        return lambda data: camel_keys(data, inner)
    if (rename := _renaming(values_of(kind)) if values_of(kind) else None) is not None:
        return lambda data: {key: rename(value) for key, value in data.items()}
    return None


def values_of(kind: Any) -> Any:
    """Return the type of the values of a mapping whose keys users choose; None for other types."""
    origin = get_origin(kind)
    is_mapping = isinstance(origin, type) and issubclass(origin, Mapping)
    return get_args(kind)[1] if is_mapping else None


#: Types of a dataclass's fields; reading them takes longer than writing a document.
hints_of = cache(get_type_hints)


@cache
def dataclass_in(kind: Any) -> Any:
    """Return the dataclass that a type is, or is optionally; None for other types."""
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return next((option for option in options if is_dataclass(option)), None)
