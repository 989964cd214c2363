"""LimitRanges: what one container or pod may ask for, and what it asks for where it is silent."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.core.store import Store
from tests.kubernetes.apiserver.objects.errors import Refused
from tests.kubernetes.apiserver.objects.quantities import parsed

_PARTS = ("requests", "limits")


def filled(store: Store, pod: Json) -> Json:
    """Return a new pod whose containers ask for what a LimitRange has them ask for."""
    spec = dict(pod["spec"])
    for item in _items(store, pod, "Container"):
        for group in ("containers", "initContainers"):
            if spec.get(group):
                spec[group] = [_container(one, item) for one in spec[group]]
    return {**pod, "spec": spec}


def _container(container: Json, item: Mapping[str, Any]) -> Json:
    resources = dict(container.get("resources") or {})
    given = {
        "limits": item.get("default") or {},
        "requests": item.get("defaultRequest") or item.get("default") or {},
    }
    for part, amounts in given.items():
        if amounts:
            resources[part] = {**amounts, **(resources.get(part) or {})}
    return {**container, "resources": resources}


def check(store: Store, pod: Json) -> None:
    """Refuse a pod that asks for less or more than its namespace's LimitRanges allow."""
    found = [
        told
        for kind, asked in _asked(pod)
        for item in _items(store, pod, kind)
        for told in _broken(item, kind, asked)
    ]
    if found:
        name = pod["metadata"]["name"]
        told = found[0] if len(found) == 1 else f"[{', '.join(found)}]"
        raise Refused(403, "Forbidden", f'pods "{name}" is forbidden: {told}')


def _items(store: Store, pod: Json, kind: str) -> Iterator[Mapping[str, Any]]:
    for each in store.all_of(("", "limitranges"), pod["metadata"]["namespace"]):
        yield from (one for one in each.obj["spec"].get("limits") or () if one["type"] == kind)


def _asked(pod: Json) -> Iterator[tuple[str, dict[str, dict[str, str]]]]:
    every = [container.get("resources") or {} for container in pod["spec"]["containers"]]
    for resources in every:
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
