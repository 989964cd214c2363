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
            return _each(value, kind_, lambda one, k, key: read(one, k, f"{path}{key}."))
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


def camel_keys(data: object, kind: Any) -> Any:
    """Return ``data``, whose keys are field names of ``kind``, with keys of a document."""
    inner = dataclass_in(kind)
    if not isinstance(data, Mapping):
        return data
    if inner is None:
        return _each(data, kind, lambda value, k, _: camel_keys(value, k))
    hints = hints_of(inner)
    return {camel(key): camel_keys(value, hints[key]) for key, value in data.items()}


def _each(data: Mapping[str, object], kind: Any, act: Any) -> dict[str, object]:
    """Apply ``act`` to the values of a mapping whose keys users choose."""
    return {key: act(value, values_of(kind), key) for key, value in data.items()}


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
