"""What the server does to an object between a request and the store."""

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.kubernetes.apiserver.core import limits, pods, resizing
from tests.kubernetes.apiserver.core.kinds import Json, Kind
from tests.kubernetes.apiserver.objects import cel
from tests.kubernetes.apiserver.objects.errors import Cause, bad_request
from tests.kubernetes.apiserver.objects.names import (
    finalizer_causes,
    metadata_causes,
    name_causes,
)
from tests.kubernetes.apiserver.objects.schema import (
    defaulted,
    mistyped,
    pruned,
    violations,
    without_nulls,
)

_BLOCKING = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
_NOT_CHECKED = Cause(
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
    "<nil>",
)


_EVERYWHERE = frozenset({"apiVersion", "kind", "metadata"})
#: Metadata that is left out where it is empty.
_OMITTED = frozenset({"labels", "annotations", "finalizers", "ownerReferences", "generateName"})


def known(kind: Kind, body: Mapping[str, Any], validation: str, warnings: list[str]) -> Json:
    """Return what the kind knows of ``body``; the rest is refused, warned of or dropped."""
    unknown: list[str] = []
    obj = pruned(body, kind.schema, unknown, root=True)
    if kind.custom:
        unknown.sort()
    if unknown and validation == "Strict":
        told = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
            f"strict decoding error: {told}"
        )
    if validation == "Warn":
        warnings += [f'unknown field "{path}"' for path in unknown]
    result: Json = obj
    return result


def cleaned(
    kind: Kind,
    body: Mapping[str, Any],
    validation: str,
    warnings: list[str],
    old: Mapping[str, Any] | None = None,
) -> Json:
    """Return what the kind knows of ``body``, defaults filled in.

    What is as in ``old`` was cleaned when that was written.
    """
    same = {
        key: value
        for key, value in body.items()
        if old is not None and key not in _EVERYWHERE and key in old and old[key] == value
    }
    rest = {key: value for key, value in body.items() if key not in same}
    obj = known(kind, rest, validation, warnings)
    if not kind.custom:
        obj = _decoded(kind, obj)
    obj = defaulted(obj, kind.schema)
    metadata = {k: v for k, v in obj["metadata"].items() if v or k not in _OMITTED}
    told = {"kind": kind.kind, "apiVersion": kind.api_version}
    obj = {**told, **obj, **told, "metadata": metadata}
    special = _DEFAULTS.get(kind.plural)
    return {**(obj if special is None or kind.custom else special(obj)), **same}


def _decoded(kind: Kind, obj: Json) -> Json:
    """Return an object of a built-in kind without nulls; refuses what its Go type cannot hold."""
    # What is wrong with metadata is found by its own rules.
    obj = {"metadata": obj["metadata"]} | {
        key: without_nulls(value) for key, value in obj.items() if key != "metadata"
    }
    cause = mistyped({k: v for k, v in obj.items() if k != "metadata"}, kind.schema, "")
    if cause is not None:
        found, wanted = cause.message.split('"')[1], cause.message.split(" of type ")[1]
        raise bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
            f"json: cannot unmarshal {_GO.get(found, found)} into Go struct field "
            f"{cause.field} of type {wanted.partition(':')[0]}"
        )
    return obj


#: How Go's decoder calls JSON's types.
_GO = {"integer": "number", "boolean": "bool"}


def _pod(obj: Json) -> Json:
    result = dict(obj)
    if isinstance(obj.get("spec"), Mapping):
        result["spec"] = pods.spec_defaulted(obj["spec"])
    if obj.get("status"):
        result["status"] = pods.status_defaulted(obj["status"])
    return result


def _namespace(obj: Json) -> Json:
    metadata = obj["metadata"]
    if not metadata.get("name"):
        return obj
    labels = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    return {**obj, "metadata": {**metadata, "labels": labels}}


def _service(obj: Json) -> Json:
    spec = {"sessionAffinity": "None", "type": "ClusterIP", **(obj.get("spec") or {})}
    if spec.get("ports"):
        spec["ports"] = [
            {"protocol": "TCP", "targetPort": port["port"], **port} for port in spec["ports"]
        ]
    return {**obj, "spec": {"internalTrafficPolicy": "Cluster", **spec}}


def _secret(obj: Json) -> Json:
    """Return a Secret with what was written as text among its data."""
    if not obj.get("stringData"):
        return obj
    told = {k: base64.b64encode(v.encode()).decode() for k, v in obj["stringData"].items()}
    rest = {key: value for key, value in obj.items() if key != "stringData"}
    return {**rest, "data": {**(obj.get("data") or {}), **told}}


def _definition(obj: Json) -> Json:
    if "spec" not in obj:
        # It is as it was, and was completed then.
        return obj
    spec = dict(obj["spec"])
    names = {
        "listKind": f"{spec['names']['kind']}List",
        "singular": spec["names"]["kind"].lower(),
        **spec["names"],
    }
    return {**obj, "spec": {"conversion": {"strategy": "None"}, **spec, "names": names}}


_DEFAULTS: Mapping[str, Callable[[Json], Json]] = {
    "pods": _pod,
    "namespaces": _namespace,
    "services": _service,
    "limitranges": limits.completed,
    "secrets": _secret,
    "customresourcedefinitions": _definition,
}


def created(kind: Kind, obj: Json, priority_of: Callable[[str], tuple[int, str]]) -> Json:
    """Return a new object as its kind's strategy and admission leave it."""
    if kind.custom:
        return {k: v for k, v in obj.items() if k != "status"} if kind.has_status else obj
    match kind.plural:
        case "pods":
            return pods.admitted(obj, priority_of) if obj.get("spec", {}).get("containers") else obj
        case "namespaces":
            return {**obj, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
        case "customresourcedefinitions":
            stored = [v["name"] for v in obj["spec"]["versions"] if v.get("storage")]
            status = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}}
            return {**obj, "status": {**status, "storedVersions": stored}}
        case "secrets":
            return {"type": "Opaque", **obj}
        case _:
            return obj


def established(definition: Json, now: str) -> Json:
    """Return a definition whose kind is served."""
    names = definition["spec"]["names"]
    conditions = [
        {
            "type": kind,
            "status": "True",
            "lastTransitionTime": now,
            "reason": reason,
            "message": message,
        }
        for kind, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    status = {**definition["status"], "conditions": conditions, "acceptedNames": names}
    return {**definition, "status": status}


def not_ready(node: Json) -> Json:
    """Return a new node as it stays until a controller sees that it is ready."""
    spec = dict(node.get("spec") or {})
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    spec["taints"] = [*(spec.get("taints") or ()), taint]
    return {**node, "spec": spec}


def causes(kind: Kind, old: Json | None, new: Json, door: str = "") -> list[Cause]:
    """Return everything that is wrong with ``new``, which replaces ``old`` (None: is new)."""
    metadata = new["metadata"]
    found: list[Cause] = []
    if old is None:
        found += name_causes(kind.plural, metadata["name"])
    else:
        found += finalizer_causes(old["metadata"], metadata, kind.custom)
    found += metadata_causes(metadata)
    if kind.custom:
        return [*found, *_custom(kind, old, new)]
    if door == "resize" and old is not None:
        found += resizing.causes(old, new)
    elif kind.plural == "pods":
        found += pods.causes(new) if old is None else pods.change_causes(old, new)
    elif kind.resource == ("batch", "jobs") and old is not None:
        found += _completions(old["spec"], new["spec"])
    return found


def _completions(old: Json, new: Json) -> Iterator[Cause]:
    """Return what is wrong with a change of a Job's completions: elastic indexed Jobs alone may."""
    path, said = "spec.completions", new.get("completions")
    if new.get("completionMode") != "Indexed":
        if said != old.get("completions"):
            yield Cause("FieldValueInvalid", f"Invalid value: {said}: field is immutable", path)
    elif said not in (old.get("completions"), new.get("parallelism")):
        message = f"Invalid value: {said}: can only be modified in tandem with spec.parallelism"
        yield Cause("FieldValueInvalid", message, path)


def _custom(kind: Kind, old: Json | None, new: Json) -> Iterator[Cause]:
    found = [*violations(new, old, kind.schema, ""), *_scale_causes(kind, new)]
    yield from found
    if any(cause.reason in _BLOCKING for cause in found):
        yield _NOT_CHECKED
    else:
        yield from cel.broken_rules(new, old, kind.schema)


def _scale_causes(kind: Kind, obj: Json) -> Iterator[Cause]:
    path = (kind.scale or {}).get("specReplicasPath")
    if path is None:
        return
    found: Any = obj
    for part in path.strip(".").split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    if found is None or (isinstance(found, int) and not isinstance(found, bool)):
        if found is not None and found < 0:
            message = f"Invalid value: {found}: should be a non-negative integer"
            yield Cause("FieldValueInvalid", message, path)
        return
    go = {str: "string", bool: "bool", float: "float64"}.get(type(found), "object")
    message = (
        f"Invalid value: 0: {path} accessor error: {found} is of the type {go}, expected int64"
    )
    yield Cause("FieldValueInvalid", message, path)
