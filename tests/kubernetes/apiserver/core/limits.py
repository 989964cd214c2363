"""LimitRanges: what one container or pod may ask for, and what it asks for where it is silent."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.core.store import Store
from tests.kubernetes.apiserver.objects.errors import disallowed
from tests.kubernetes.apiserver.objects.quantities import parsed

_PARTS = ("requests", "limits")
_ANNOTATION = "kubernetes.io/limit-ranger"


def filled(store: Store, pod: Json) -> Json:
    """Return a new pod whose containers ask for what a LimitRange has them ask for."""
    spec, told = dict(pod["spec"]), list[str]()
    for item in _items(store, pod, "Container"):
        for group in ("containers", "initContainers"):
            if spec.get(group):
                spec[group] = [_container(one, item, group, told) for one in spec[group]]
    if not told:
        return pod
    said = {_ANNOTATION: f"LimitRanger plugin set: {'; '.join(told)}"}
    metadata = pod["metadata"]
    annotations = {**(metadata.get("annotations") or {}), **said}
    return {**pod, "metadata": {**metadata, "annotations": annotations}, "spec": spec}


def _container(container: Json, item: Mapping[str, Any], group: str, told: list[str]) -> Json:
    resources = dict(container.get("resources") or {})
    for part, source in (("requests", "defaultRequest"), ("limits", "default")):
        amounts, had = item.get(source) or {}, resources.get(part) or {}
        kind = group.removesuffix("Containers").removesuffix("containers") + " container"
        told += [
            f"{name} {part[:-1]} for {kind.strip()} {container['name']}"
            for name in sorted(amounts.keys() - had.keys())
        ]
        if amounts:
            resources[part] = {**amounts, **had}
    return {**container, "resources": resources}


def completed(limit_range: Json) -> Json:
    """Return a LimitRange whose containers ask, where they are silent, for as much as they may."""
    spec = limit_range["spec"]
    return {**limit_range, "spec": {**spec, "limits": [_item(one) for one in spec["limits"]]}}


def _item(item: Json) -> Json:
    if item["type"] != "Container":
        return item
    most = {**(item.get("max") or {}), **(item.get("default") or {})}
    least = {**(item.get("min") or {}), **most, **(item.get("defaultRequest") or {})}
    given = {"default": most, "defaultRequest": least}
    return {**item, **{name: amounts for name, amounts in given.items() if amounts}}


def check(store: Store, pod: Json) -> None:
    """Refuse a pod that asks for less or more than its namespace's LimitRanges allow."""
    found = [
        told
        for kind, asked in _asked(pod)
        for item in _items(store, pod, kind)
        for told in _broken(item, kind, asked)
    ]
    if found:
        told = found[0] if len(found) == 1 else f"[{', '.join(found)}]"
        raise disallowed("pods", pod["metadata"]["name"], told)


def _items(store: Store, pod: Json, kind: str) -> Iterator[Mapping[str, Any]]:
    for each in store.all_of(("", "limitranges"), pod["metadata"]["namespace"]):
        yield from (one for one in each.obj["spec"].get("limits") or () if one["type"] == kind)


def _asked(pod: Json) -> Iterator[tuple[str, dict[str, dict[str, str]]]]:
    every, first = (
        [container.get("resources") or {} for container in pod["spec"].get(group) or ()]
        for group in ("containers", "initContainers")
    )
    for resources in (*every, *first):
        yield "Container", {part: resources.get(part) or {} for part in _PARTS}
    total: dict[str, dict[str, str]] = {part: {} for part in _PARTS}
    for part in _PARTS:
        for name in {name for one in every for name in one.get(part) or ()}:
            amounts = (parsed((one.get(part) or {}).get(name, "0")) for one in every)
            total[part][name] = f"{sum(amounts, Decimal(0)):f}"
    yield "Pod", total


def _broken(
    item: Mapping[str, Any], kind: str, asked: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    for name, least in (item.get("min") or {}).items():
        yield from _outside("minimum", name, kind, least, asked, ("requests", "limits"))
    for name, most in (item.get("max") or {}).items():
        yield from _outside("maximum", name, kind, most, asked, ("limits", "requests"))
    for name, most in (item.get("maxLimitRequestRatio") or {}).items():
        yield from _burst(name, kind, most, asked)


def _burst(
    name: str, kind: str, most: str, asked: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    said = f"{name} max limit to request ratio per {kind} is {most}, but"
    request, limit = (parsed(asked[part].get(name, "0")) for part in _PARTS)
    if not request or not limit:
        part = "limit" if request else "request"
        yield f"{said} no {part} is specified or {part} is 0"
    elif limit / request > parsed(most):
        yield f"{said} provided ratio is {limit / request:.6f}"


def _outside(
    word: str,
    name: str,
    kind: str,
    bound: str,
    asked: Mapping[str, Mapping[str, str]],
    order: tuple[str, str],
) -> Iterator[str]:
    first = order[0].removesuffix("s")
    if name not in asked[order[0]]:
        yield f"{word} {name} usage per {kind} is {bound}.  No {first} is specified"
        return
    for part in order:
        amount = asked[part].get(name)
        if amount is None:
            continue
        beyond = parsed(amount) - parsed(bound)
        if beyond > 0 if word == "maximum" else beyond < 0:
            told = part.removesuffix("s")
            yield f"{word} {name} usage per {kind} is {bound}, but {told} is {amount}"
            return
