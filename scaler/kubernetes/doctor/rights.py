"""Asks the API server if the operator has each permission, because only the API server knows
this.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from brain.types.finding import Finding
from scaler.kubernetes.kinds.rights import RIGHTS, Right, Scope
from scaler.kubernetes.runtime.cluster import Cluster, Kind

_GROUP = "authorization.k8s.io"
_SELF = Kind(_GROUP, "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False)
_OTHER = Kind(_GROUP, "v1", "subjectaccessreviews", "SubjectAccessReview", False)
#: API groups of optional components; without one of them the rest still works.
_OPTIONAL = frozenset(
    {
        "scheduling.volcano.sh",
        "kubeflow.org",
        "kueue.x-k8s.io",
        "jobset.x-k8s.io",
        "batch",
        "autoscaling",
        "autoscaling.k8s.io",
        "metrics.k8s.io",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RightsQuestion:
    """The account and the namespaces whose permissions are checked."""

    #: Namespaces that the operator serves; empty for all.
    namespaces: tuple[str, ...] = ()
    #: Namespace of the operator itself.
    own: str = "brain"
    #: ``system:serviceaccount:brain:brain-scaler``, for example; None for this command's account.
    user: str | None = None


def examine(cluster: Cluster, asking: RightsQuestion) -> Iterator[Finding]:
    """Yield one finding for each resource and namespace for which a verb is missing.

    If no verb is missing, yield one finding that says so.
    """
    missing = 0
    for right in RIGHTS:
        for namespace in places(right, asking):
            for resource in right.resources:
                lacking = [
                    verb
                    for verb in right.verbs
                    if not _may(cluster, asking, right, resource, verb, namespace)
                ]
                if lacking:
                    missing += 1
                    yield _finding(right, resource, lacking, namespace, asking)
    if not missing:
        who = asking.user or "this account"
        yield Finding("ok", f"{who} has all permissions that the operator needs")


def places(right: Right, asking: RightsQuestion) -> Sequence[str]:
    """Return the namespaces in which a permission is needed; an empty name means all namespaces."""
    match right.scope:
        case Scope.OWN:
            return (asking.own,)
        case Scope.CLUSTER:
            return ("",)
        case Scope.JOBS:
            return asking.namespaces or ("",)


def remedy(scope: Scope, namespace: str, asking: RightsQuestion) -> str:
    """Return the command that grants the permissions of a scope: the operator's own namespace, the
    namespaces of jobs, or the whole cluster.
    """
    if not asking.namespaces:
        return f"kubectl apply -n {asking.own} -f deploy/kustomize/cluster-wide/rbac.yaml"
    if scope is Scope.JOBS:
        return f"kubectl apply -n {namespace} -f deploy/kustomize/namespaced/jobs/rbac.yaml"
    return f"kubectl apply -n {asking.own} -f deploy/kustomize/namespaced/rbac.yaml"


def _finding(
    right: Right, resource: str, lacking: Sequence[str], namespace: str, asking: RightsQuestion
) -> Finding:
    full = f"{resource}.{right.group}" if right.group else resource
    where = f" in {namespace}" if namespace else ""
    said = (
        f"the operator lacks the permission to {', '.join(lacking)} {full}{where}; with this "
        f"permission it {right.why}"
    )
    optional = right.group in _OPTIONAL
    return Finding("note" if optional else "bad", said, remedy(right.scope, namespace, asking))


def _may(
    cluster: Cluster, asking: RightsQuestion, right: Right, resource: str, verb: str, namespace: str
) -> bool:
    name, _, part = resource.partition("/")
    wanted = {"verb": verb, "group": right.group, "resource": name}
    wanted |= {"subresource": part} if part else {}
    wanted |= {"namespace": namespace} if namespace else {}
    kind = _SELF if asking.user is None else _OTHER
    spec: dict[str, object] = {"resourceAttributes": wanted}
    if asking.user is not None:
        spec |= {"user": asking.user, "groups": groups(asking.user)}
    review = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        # The server answers reviews and does not store them: they have no name.
        "metadata": {},
        "spec": spec,
    }
    answer = cluster.create(kind, review)
    return bool((answer.get("status") or {}).get("allowed"))


def groups(user: str) -> list[str]:
    """Return the groups to which Kubernetes assigns a user, as the user's name implies.

    >>> groups("system:serviceaccount:brain:brain-scaler")[1]
    'system:serviceaccounts:brain'
    """
    parts = user.split(":")
    found = ["system:authenticated"]
    if parts[:2] == ["system", "serviceaccount"] and len(parts) == 4:
        found = ["system:serviceaccounts", f"system:serviceaccounts:{parts[2]}", *found]
    return found
