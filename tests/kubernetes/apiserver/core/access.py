"""Who may do what: roles and bindings, and the reviews that ask."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.core.store import Store

ADMIN = "kubernetes-admin"
_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """One thing that somebody wants to do."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def told(self) -> str:
        """Return the resource as rules spell it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class Access:
    """Rights: the admin's are all; a service account's are what is bound to it.

    ``deny`` takes rights away from everybody, which spares a test the roles.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._denied: list[tuple[str, str, str]] = []

    def deny(self, verb: str, resource: str, group: str = "*") -> None:
        """Refuse ``verb`` on ``resource`` (``pods``, ``pods/eviction``; ``*``: any)."""
        self._denied.append((verb, resource, group))

    def may(self, user: str, wish: Attributes) -> bool:
        """Return whether ``user`` may."""
        for verb, resource, group in self._denied:
            if (
                verb in ("*", wish.verb)
                and resource in ("*", wish.told)
                and group in ("*", wish.group)
            ):
                return False
        if user == ADMIN:
            return True
        return any(_covers(rule, wish) for rule in self._rules(user, wish.namespace))

    def _rules(self, user: str, namespace: str) -> Iterable[Mapping[str, Any]]:
        """Yield the rules that hold for ``user`` in ``namespace`` (empty: the cluster)."""
        for binding in self._store.all_of((_RBAC, "clusterrolebindings")):
            if _names(binding.obj, user):
                yield from self._role(binding.obj["roleRef"], "")
        if not namespace:
            return
        for binding in self._store.all_of((_RBAC, "rolebindings"), namespace):
            if _names(binding.obj, user):
                yield from self._role(binding.obj["roleRef"], namespace)

    def _role(self, reference: Mapping[str, Any], namespace: str) -> Iterable[Mapping[str, Any]]:
        if reference["kind"] == "ClusterRole":
            role = self._store.find((_RBAC, "clusterroles"), ("", reference["name"]))
        else:
            role = self._store.find((_RBAC, "roles"), (namespace, reference["name"]))
        return (role.obj.get("rules") or ()) if role is not None else ()

    def review(self, user: str, kind: str, body: Mapping[str, Any]) -> Json:
        """Return the answer to a review."""
        spec = body.get("spec") or {}
        if kind == "SelfSubjectRulesReview":
            rules = [
                {"verbs": rule.get("verbs", []), "apiGroups": rule.get("apiGroups", []),
                 "resources": rule.get("resources", [])}
                for rule in self._rules(user, spec.get("namespace", ""))
            ]  # fmt: skip
            everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
            return {
                "resourceRules": [everything] if user == ADMIN else rules,
                "nonResourceRules": [],
                "incomplete": False,
            }
        asked = spec.get("resourceAttributes") or {}
        who = user if kind == "SelfSubjectAccessReview" else spec.get("user", "")
        wish = Attributes(
            verb=asked.get("verb", ""),
            group=asked.get("group", ""),
            resource=asked.get("resource", ""),
            subresource=asked.get("subresource", ""),
            namespace=asked.get("namespace", ""),
            name=asked.get("name", ""),
        )
        return {"allowed": "nonResourceAttributes" in spec or self.may(who, wish)}


def _names(binding: Mapping[str, Any], user: str) -> bool:
    for subject in binding.get("subjects") or ():
        if subject["kind"] == "ServiceAccount":
            account = f"system:serviceaccount:{subject.get('namespace', '')}:{subject['name']}"
            if account == user:
                return True
        elif subject["kind"] == "User" and subject["name"] == user:
            return True
    return False


def _covers(rule: Mapping[str, Any], wish: Attributes) -> bool:
    verbs, groups = rule.get("verbs") or (), rule.get("apiGroups") or ()
    resources, names = rule.get("resources") or (), rule.get("resourceNames") or ()
    return (
        ("*" in verbs or wish.verb in verbs)
        and ("*" in groups or wish.group in groups)
        and ("*" in resources or wish.told in resources)
        and (not names or wish.name in names)
    )
