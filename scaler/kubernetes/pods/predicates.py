"""The predicates of kube-scheduler that look at a pod and a node, whoever else is there."""

from collections.abc import Iterator, Mapping
from typing import Any

from scaler.kubernetes.runtime.cluster.kind import Object

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_KEEP_OFF = ("NoSchedule", "NoExecute")
_CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def may_come(pod: Object, node: Object) -> bool:
    """True if a node would take a pod if it were empty and alone."""
    return not dislike(pod, node)


def dislike(pod: Object, node: Object) -> str:
    """Why a node does not take a pod, whoever else is there; empty: it may."""
    spec, labels = pod["spec"], labels_of(node)
    selector: Mapping[str, str] = spec.get("nodeSelector") or {}
    if not selector.items() <= labels.items():
        missing = ", ".join(f"{key}={value}" for key, value in selector.items())
        return f"lacks labels of nodeSelector {missing}"
    if not _attracts(spec.get("affinity") or {}, node):
        return "is excluded by nodeAffinity"
    for taint in _taints(node):
        if taint.get("effect") in _KEEP_OFF and not _tolerated(taint, spec):
            return f"has taint {said_taint(taint)} that is not tolerated"
    return ""


def _taints(node: Object) -> Iterator[Mapping[str, Any]]:
    """A node's taints, and those that a cordon and a silent kubelet stand for."""
    spec: Mapping[str, Any] = node.get("spec") or {}
    yield from spec.get("taints") or ()
    if spec.get("unschedulable"):
        yield _CORDON
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") != "True":
            yield _NOT_READY


def said_taint(taint: Mapping[str, Any]) -> str:
    """Write a taint as kubectl does.

    >>> said_taint({"key": "team", "value": "a", "effect": "NoSchedule"})
    'team=a:NoSchedule'
    """
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key', '')}{value}:{taint.get('effect', '')}"


def _tolerated(taint: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    for each in spec.get("tolerations") or ():
        if each.get("effect") and each["effect"] != taint.get("effect"):
            continue
        if each.get("key") and each["key"] != taint.get("key"):
            continue
        if each.get("operator") == "Exists":
            return True
        if each.get("key") and (each.get("value") or "") == (taint.get("value") or ""):
            return True
    return False


def _attracts(affinity: Mapping[str, Any], node: Object) -> bool:
    """True if required node affinity lets a pod come: one term of several holds whole."""
    required = (affinity.get("nodeAffinity") or {}).get(_REQUIRED)
    if required is None:
        return True
    labels, fields = labels_of(node), {"metadata.name": node["metadata"]["name"]}
    for term in required.get("nodeSelectorTerms") or ():
        by_label, by_field = term.get("matchExpressions") or (), term.get("matchFields") or ()
        # A term that asks for nothing selects nothing.
        if (by_label or by_field) and all(
            (*(_holds(each, labels) for each in by_label), *(_holds(e, fields) for e in by_field))
        ):
            return True
    return False


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression.get("key", "")), expression.get("values") or []
    match expression.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            try:
                difference = int(value or "") - int(values[0])
            except (ValueError, TypeError, IndexError):
                return False
            return difference > 0 if operator == "Gt" else difference < 0
        case _:
            return False


def selected(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    equal: Mapping[str, str] = selector.get("matchLabels") or {}
    if not equal.items() <= labels.items():
        return False
    return all(_holds(each, labels) for each in selector.get("matchExpressions") or ())


def labels_of(node: Object) -> Mapping[str, str]:
    return (node.get("metadata") or {}).get("labels") or {}
