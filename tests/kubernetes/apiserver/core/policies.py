"""Who else may refuse a write: ValidatingAdmissionPolicies, and webhooks that tests play.

As in the apiserver both come after an object's own validation. A policy's denial is a 422 of reason
Invalid (unless its validation has another reason), a webhook's is a 400, whatever its words.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import celpy

from tests.kubernetes.apiserver.core.kinds import Json, Kind
from tests.kubernetes.apiserver.core.store import Store
from tests.kubernetes.apiserver.objects.cel import evaluated
from tests.kubernetes.apiserver.objects.errors import Refused, qualified

GROUP = "admissionregistration.k8s.io"
POLICIES = (GROUP, "validatingadmissionpolicies")
BINDINGS = (GROUP, "validatingadmissionpolicybindings")
_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413, "Invalid": 422}
#: Says why it denies an object that replaces another one (None: it is new); None: it does not.
Webhook = Callable[[Kind, Json | None, Json], str | None]


def check(
    store: Store,
    webhooks: Mapping[str, Webhook],
    kind: Kind,
    old: Json | None,
    new: Json,
    warnings: list[str],
) -> None:
    """Refuse what a policy or a webhook denies; ``old`` None: it is new."""
    for name, webhook in webhooks.items():
        why = webhook(kind, old, new)
        if why is not None:
            raise Refused(400, "", f'admission webhook "{name}" denied the request: {why}')
    for policy, binding in _bound(store, kind, old, new):
        for rule in policy["spec"].get("validations") or ():
            told = _broken(rule, old, new)
            if told is None:
                continue
            names = policy["metadata"]["name"], binding["metadata"]["name"]
            whose = f"ValidatingAdmissionPolicy '{names[0]}' with binding '{names[1]}'"
            said = f"{whose} denied request: {told}"
            actions = binding["spec"].get("validationActions") or ["Deny"]
            if "Warn" in actions:
                warnings.append(f"Validation failed for {whose}: {told}")
            if "Deny" in actions:
                raise _denied(kind, new, rule.get("reason") or "Invalid", said)


def _denied(kind: Kind, obj: Json, reason: str, said: str) -> Refused:
    name = obj["metadata"]["name"]
    details: Json = {"name": name, "kind": kind.plural, "causes": [{"message": said}]}
    if kind.group:
        details["group"] = kind.group
    message = f'{qualified(kind.plural, kind.group)} "{name}" is forbidden: {said}'
    return Refused(_CODES[reason], reason, message, details)


def _bound(store: Store, kind: Kind, old: Json | None, new: Json) -> Iterator[tuple[Json, Json]]:
    policies = {one.key[1]: one.obj for one in store.all_of(POLICIES)}
    for binding in store.all_of(BINDINGS):
        policy = policies.get(binding.obj["spec"]["policyName"])
        chosen = binding.obj["spec"].get("matchResources") or {}
        if policy is None or not _inside(store, chosen.get("namespaceSelector"), new):
            continue
        rules = (policy["spec"].get("matchConstraints") or {}).get("resourceRules") or ()
        operation = "CREATE" if old is None else "UPDATE"
        if any(_about(rule, kind, operation) for rule in rules):
            yield policy, binding.obj


def _inside(store: Store, selector: Json | None, obj: Json) -> bool:
    """Return whether an object's namespace is selected (by equal labels alone)."""
    home = store.find(("", "namespaces"), ("", obj["metadata"].get("namespace", "")))
    labels = (home.obj["metadata"].get("labels") or {}) if home is not None else {}
    wanted: Mapping[str, str] = (selector or {}).get("matchLabels") or {}
    return wanted.items() <= labels.items()


def _about(rule: Json, kind: Kind, operation: str) -> bool:
    asked = (("apiGroups", kind.group), ("apiVersions", kind.version), ("operations", operation),
             ("resources", kind.plural))  # fmt: skip
    return all(value in rule[name] or "*" in rule[name] for name, value in asked)


def _broken(rule: Json, old: Json | None, new: Json) -> str | None:
    """Return what is said where a validation does not hold."""
    names: dict[str, Any] = {"object": new, "oldObject": old}
    try:
        if bool(evaluated(rule["expression"], names)):
            return None
    except celpy.CELEvalError as error:
        return f"expression '{rule['expression']}' resulted in error: {error.args[0]}"
    return str(rule.get("message") or f"failed expression: {rule['expression']}")
