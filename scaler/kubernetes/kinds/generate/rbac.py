"""Generates roles from permissions: for a list of namespaces or cluster-wide, and for people."""

from collections.abc import Iterable
from typing import Any

from scaler.kubernetes.kinds.fields import GROUP
from scaler.kubernetes.kinds.rights import RIGHTS, Right, Scope

_API = "rbac.authorization.k8s.io/v1"


def rules(rights: Iterable[Right], *scopes: Scope) -> list[dict[str, list[str]]]:
    """Return the RBAC rules of the permissions whose scope is one of ``scopes``."""
    return [
        {
            "apiGroups": [right.group],
            "resources": list(right.resources),
            "verbs": list(right.verbs),
        }
        for right in rights
        if right.scope in scopes
    ]


def cluster_wide() -> list[dict[str, Any]]:
    """Return the roles and bindings with which the operator may serve every namespace.

    The operator may write leases only in the namespace in which it runs.
    """
    return [
        _role("ClusterRole", "brain-scaler", rules(RIGHTS, Scope.JOBS, Scope.CLUSTER)),
        _binding("ClusterRoleBinding", "brain-scaler", "ClusterRole"),
        _role("Role", "brain-scaler", rules(RIGHTS, Scope.OWN)),
        _binding("RoleBinding", "brain-scaler", "Role"),
    ]


def in_namespace() -> list[dict[str, Any]]:
    """Return the role and binding with which the operator may serve one namespace.

    The namespace is the one to which these objects are applied.
    """
    return [
        _role("Role", "brain-scaler-jobs", rules(RIGHTS, Scope.JOBS)),
        _binding("RoleBinding", "brain-scaler-jobs", "Role"),
    ]


def in_own() -> list[dict[str, Any]]:
    """Return the objects that an operator with listed namespaces needs in addition to the objects
    of ``in_namespace``.
    """
    return [
        _role("Role", "brain-scaler", rules(RIGHTS, Scope.OWN)),
        _binding("RoleBinding", "brain-scaler", "Role"),
        _role("ClusterRole", "brain-scaler-nodes", rules(RIGHTS, Scope.CLUSTER)),
        _binding("ClusterRoleBinding", "brain-scaler-nodes", "ClusterRole"),
    ]


def for_editors() -> list[dict[str, list[str]]]:
    """Return rules for people who may edit workloads: jobs, and requests for plans."""
    write = ["create", "update", "patch", "delete", "deletecollection"]
    return [
        _rule(["elasticjobs", "scaleplans"], ["get", "list", "watch", *write]),
        _rule(["elasticjobs/scale"], ["get", "patch", "update"]),
    ]


def for_viewers() -> list[dict[str, list[str]]]:
    """Return rules for people who may view workloads."""
    return [_rule(["elasticjobs", "scaleplans"], ["get", "list", "watch"])]


def for_people() -> list[dict[str, Any]]:
    """Return roles for editors and viewers, aggregated to the roles that every cluster has."""
    return [
        _aggregated("brain-jobs-edit", ("edit", "admin"), for_editors()),
        _aggregated("brain-jobs-view", ("view",), for_viewers()),
    ]


def _rule(resources: list[str], verbs: list[str]) -> dict[str, list[str]]:
    return {"apiGroups": [GROUP], "resources": resources, "verbs": verbs}


def _role(kind: str, name: str, rules: list[dict[str, list[str]]]) -> dict[str, Any]:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, "rules": rules}


def _aggregated(
    name: str, to: tuple[str, ...], rules: list[dict[str, list[str]]]
) -> dict[str, Any]:
    role = _role("ClusterRole", name, rules)
    labels = {f"rbac.authorization.k8s.io/aggregate-to-{each}": "true" for each in to}
    role["metadata"] = {"name": name, "labels": labels}
    return role


def _binding(kind: str, name: str, role: str) -> dict[str, Any]:
    return {
        "apiVersion": _API,
        "kind": kind,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "brain-scaler", "namespace": "brain"}],
    }
