"""Checks the amounts of pods against a namespace's LimitRanges and ResourceQuotas.

All functions are pure. They check only CPU and memory. The API server checks quotas with scopes,
and other admission rules; its refusal is shown to the user.
"""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from scaler.kubernetes.kinds.quantities import quantity
from scaler.kubernetes.pods.amounts import NAMES, Amounts, said
from scaler.kubernetes.runtime.cluster.kind import Object


def beyond_range(ranges: Sequence[Object], container: Amounts) -> str:
    """Return why LimitRanges refuse a container with these amounts; empty if they accept it."""
    for obj in ranges:
        for item in (obj.get("spec") or {}).get("limits") or ():
            if item.get("type") == "Container":
                for why in _outside(item, container):
                    return f"LimitRange {obj['metadata']['name']}: {why}"
    return ""


def _outside(item: Mapping[str, Any], container: Amounts) -> Iterator[str]:
    for name in NAMES:
        for part in ("requests", "limits"):
            text = (container.get(part) or {}).get(name)
            if text is None:
                continue
            amount, shown = quantity(text, name), f"{name} {part} of {text}"
            most, least = ((item.get(each) or {}).get(name) for each in ("max", "min"))
            if most is not None and amount > quantity(most, name):
                yield (
                    f"{shown} are more than {most}, the most that a container may have; ask for "
                    "less, or raise the LimitRange's max"
                )
            if least is not None and amount < quantity(least, name):
                yield (
                    f"{shown} are less than {least}, the least that a container may have; ask for "
                    "more, or lower the LimitRange's min"
                )


def beyond_quota(quotas: Sequence[Object], more: Sequence[tuple[Amounts, Amounts]]) -> str:
    """Return why ResourceQuotas have no room for a change; empty if they have room.

    ``more`` has each container that changes, with its amounts before and after.
    """
    for obj in quotas:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue
        for key, hard in (spec.get("hard") or {}).items():
            if key not in (status.get("used") or {}):
                # No controller has counted yet, or none counts here.
                continue
            wanted = sum((_grown(key, *pair) for pair in more), Decimal(0))
            used = quantity(status["used"][key], f"used.{key}")
            left = max(quantity(hard, f"hard.{key}") - used, Decimal(0))
            if wanted > left:
                name, quota = key.rpartition(".")[2], obj["metadata"]["name"]
                return (
                    f"ResourceQuota {quota} has {said(name, left)} of {key} {hard} left, but the "
                    f"change needs {said(name, wanted)} more; raise the quota, or ask for less"
                )
    return ""


def _grown(key: str, before: Amounts, after: Amounts) -> Decimal:
    """Return by how much a container's count under a key of a quota grows."""
    part, _, name = key.rpartition(".")
    if name not in NAMES or part not in ("", "requests", "limits"):
        return Decimal(0)
    new, old = ((each.get(part or "requests") or {}).get(name, "0") for each in (after, before))
    return quantity(new, name) - quantity(old, name)
