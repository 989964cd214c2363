"""The predicates of kube-scheduler that depend only on a pod and a node."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from scaler.kubernetes.runtime.cluster.kind import Object

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
KEEP_OFF = ("NoSchedule", "NoExecute")
_CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
#: The taints that Kubernetes puts on a node whose condition ``Ready`` is false or unknown.
_SILENT = {
    "False": {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
    "Unknown": {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"},
}
#: Integers in labels; Python's ``int`` would also read ``1_0``.
_NUMBER = r"[+-]?[0-9]+"


def may_come(pod: Object, node: Object) -> bool:
    """True if a node would accept a pod if the node were empty."""
    return not dislike(pod, node)


def dislike(pod: Object, node: Object) -> str:
    """Return why a node refuses a pod, whatever pods run there; empty if the node accepts the
    pod.
    """
    return unselected(pod, node) or repelled(pod, node)


def unselected(pod: Object, node: Object) -> str:
    """Return why the pod's selector or affinity excludes a node; empty if it does not."""
    selector: Mapping[str, str] = pod["spec"].get("nodeSelector") or {}
    if not selector.items() <= labels_of(node).items():
        missing = ", ".join(f"{key}={value}" for key, value in selector.items())
        return f"lacks labels of nodeSelector {missing}"
    attracts = _attracts(pod["spec"].get("affinity") or {}, node)
    return "" if attracts else "is excluded by nodeAffinity"


def repelled(pod: Object, node: Object) -> str:
    """Return why a node's taints repel a pod; empty if they do not."""
    for taint in _taints(node):
        if taint.get("effect") in KEEP_OFF and not tolerated(taint, pod["spec"]):
            return f"has taint {said_taint(taint)}, which the pod does not tolerate"
    return ""


def _taints(node: Object) -> Iterator[Mapping[str, Any]]:
    """Return a node's taints, and those that a cordon and a silent kubelet imply."""
    spec: Mapping[str, Any] = node.get("spec") or {}
    yield from spec.get("taints") or ()
    if spec.get("unschedulable"):
        yield _CORDON
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") in _SILENT:
            yield _SILENT[condition["status"]]


def said_taint(taint: Mapping[str, Any]) -> str:
    """Format a taint as kubectl does.

    >>> said_taint({"key": "team", "value": "a", "effect": "NoSchedule"})
    'team=a:NoSchedule'
    """
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key', '')}{value}:{taint.get('effect', '')}"


def tolerated(taint: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    """True if a pod's ``spec`` has a toleration for a taint."""
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
    """True if required node affinity admits a node: at least one term matches whole."""
    required = (affinity.get("nodeAffinity") or {}).get(_REQUIRED)
    if required is None:
        return True
    labels, fields = labels_of(node), {"metadata.name": node["metadata"]["name"]}
    for term in required.get("nodeSelectorTerms") or ():
        by_label, by_field = term.get("matchExpressions") or (), term.get("matchFields") or ()
        # An empty term selects nothing.
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
            numbers = [str(value), *map(str, values)]
            if len(numbers) != 2 or not all(re.fullmatch(_NUMBER, each) for each in numbers):
                return False
            difference = int(numbers[0]) - int(numbers[1])
            return difference > 0 if operator == "Gt" else difference < 0
        case _:
            return False


def selected(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """True if a label selector matches these labels; a selector that is None matches no labels."""
    if selector is None:
        return False
    equal: Mapping[str, str] = selector.get("matchLabels") or {}
    if not equal.items() <= labels.items():
        return False
    return all(_holds(each, labels) for each in selector.get("matchExpressions") or ())


def labels_of(obj: Object) -> Mapping[str, str]:
    """Return the labels of a node or pod."""
    return (obj.get("metadata") or {}).get("labels") or {}
