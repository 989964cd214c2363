"""Reads API objects as ElasticJobs and ScalePlans, and refuses unusable objects.

A refusal names the field, the value and the remedy. The API server's schema refuses most of these
objects earlier. This module also refuses objects that were stored before this schema was installed,
or under another schema.
"""

from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from brain.errors import BadInput
from scaler.kubernetes.kinds import checks
from scaler.kubernetes.kinds.elasticjob import ElasticJob
from scaler.kubernetes.kinds.scaleplan import ScalePlan

T = TypeVar("T")

# msgspec 0.22 builds its knowledge of a class at the first use and shows other threads the
# half-built result, which crashes the process. So this module builds it at import, where no other
# thread runs.
for _kind in (ElasticJob, ScalePlan):
    msgspec.json.Decoder(_kind)


#: The last object of each uid that was read, and the result: several looks a second concern an
#: object that a store has not exchanged since.
_LAST: dict[str, tuple[Mapping[str, Any], ElasticJob]] = {}
_MOST_KEPT = 10_000


def read_elastic_job(obj: Mapping[str, Any]) -> ElasticJob:
    """Read an ElasticJob; callers must not change it in place.

    Raises:
        BadInput: the object cannot run in its present form.
    """
    metadata = obj.get("metadata")
    uid = str(metadata.get("uid") or "") if isinstance(metadata, Mapping) else ""
    known = _LAST.get(uid)
    if known is not None and known[0] is obj:
        return known[1]
    job = _converted(obj, ElasticJob)
    checks.check_job(job)
    if len(_LAST) >= _MOST_KEPT:
        _LAST.clear()
    if uid:
        _LAST[uid] = obj, job
    return job


def read_scale_plan(obj: Mapping[str, Any]) -> ScalePlan:
    """Read a ScalePlan.

    Raises:
        BadInput: the object cannot be carried out.
    """
    plan = _converted(obj, ScalePlan)
    checks.check_plan(plan)
    return plan


def _converted(obj: Mapping[str, Any], kind: type[T]) -> T:
    # A status that another version wrote must not keep the spec from being read.
    for data in (obj, {key: value for key, value in obj.items() if key != "status"}):
        try:
            return msgspec.convert(data, type=kind)
        except msgspec.ValidationError as bad:
            error = bad
    data = {key: value for key, value in obj.items() if key != "status"}
    raise _located(data, kind, "") or BadInput(str(error)) from error


def _located(value: object, kind: Any, path: str) -> BadInput | None:
    """Return the first fault in ``value``, deepest first, so that its path is complete."""
    if value is None and type(None) in get_args(_bare(kind)[0]):
        return None
    whole = _without_none(kind)
    kind, form = _bare(whole)
    for key, inner, inner_kind in _parts(value, kind):
        fault = _located(inner, inner_kind, f"{path}.{key}".lstrip("."))
        if fault is not None:
            return fault
    try:
        msgspec.convert(value, type=whole)
    except msgspec.ValidationError as bad:
        return _said(value, kind, path, form, str(bad))
    return None


def _parts(value: object, kind: Any) -> list[tuple[str, object, Any]]:
    """Yield key, value and type of everything directly inside."""
    if isinstance(value, Mapping) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind, include_extras=True)
        return [
            (field.encode_name, value[field.encode_name], hints[field.name])
            for field in msgspec.structs.fields(kind)
            if field.encode_name in value
        ]
    if isinstance(value, Mapping) and len(get_args(kind)) == 2:
        return [(str(key), inner, get_args(kind)[1]) for key, inner in value.items()]
    if isinstance(value, list | tuple) and get_origin(kind) is tuple:
        return [(str(n), inner, get_args(kind)[0]) for n, inner in enumerate(value)]
    return []


def _bare(kind: Any) -> tuple[Any, str | None]:
    """Return a type without ``Annotated``, and the form in which its values are written."""
    if get_origin(kind) is not Annotated:
        return kind, None
    inner, *metas = get_args(kind)
    return inner, next((meta.extra["form"] for meta in metas if "form" in (meta.extra or {})), None)


def _without_none(kind: Any) -> Any:
    rest = [each for each in get_args(kind) if each is not type(None)]
    return rest[0] if len(rest) == 1 and type(None) in get_args(kind) else kind


def _said(value: object, kind: Any, path: str, form: str | None, said: str) -> BadInput:
    field = path or "the object"
    if isinstance(value, Mapping) and "missing required field" in said:
        name = said.split("`")[1]
        inner = f"{path}.{name}".lstrip(".")
        return BadInput(f"{inner} is missing; give it", field=inner)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        words = [str(word) for word in kind]
        near = get_close_matches(str(value), words, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return BadInput(
            f"{field} {value!r} is not allowed; choose one of {', '.join(words)}{hint}",
            field=path,
        )
    return BadInput(
        f"{field} {_short(value)} is not valid: {_why(said)}; give {form or _form(kind)}",
        field=path,
    )


def _form(kind: Any) -> str:
    forms: dict[Any, str] = {
        int: "a whole number in its range, without quotes",
        bool: "true or false, without quotes",
        str: "text, in quotes where it looks like a number",
        datetime: "an instant: `2026-01-31T12:00:00Z`",
    }
    if get_origin(kind) is tuple:
        return "a list"
    return forms.get(kind, "an object with its fields")


def _why(said: str) -> str:
    first = said.split(" - at `")[0].replace("`", "")
    return first[:1].lower() + first[1:]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
