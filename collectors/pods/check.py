"""Checks if a cluster has everything that this collector needs, for ``brain doctor --cluster``.

Each finding is one line of JSON. Access reviews of the API server show the permissions of the
calling account, or of a named account. The check for the operator (``scaler.kubernetes.doctor``)
covers kinds and nodes.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

import httpx2

from brain.errors import BrainError, NotFound
from brain.types.finding import Finding
from collectors.pods.door import Door
from collectors.pods.sources import METRICS, REMEDIES, prometheus_query

_REVIEWS = "/apis/authorization.k8s.io/v1"
#: Verb, group, resource, the source that needs this permission, and True if it is indispensable.
_RIGHTS = (
    ("list", "", "pods", "pods", True),
    ("watch", "", "pods", "watch", False),
    ("list", "", "nodes", "nodes", True),
    ("list", "elastic.iml.github.io", "elasticjobs", "jobs", True),
    ("list", "kubeflow.org", "pytorchjobs", "jobs", False),
    ("list", "jobset.x-k8s.io", "jobsets", "jobs", False),
    ("list", "metrics.k8s.io", "pods", "usage", False),
    ("list", "metrics.k8s.io", "nodes", "usage", False),
)
_OF_CLUSTER = ("nodes",)


async def examine(
    door: Door,
    namespaces: Sequence[str],
    prometheus: httpx2.AsyncClient | None,
    *,
    user: str | None = None,
) -> list[Finding]:
    """Check everything that the collector needs, and return the findings; a check that fails to run
    is a finding, too.

    Args:
        user: the account whose permissions to check; None for the calling account.
    """
    found: list[Finding] = []
    try:
        found += await _rights(door, namespaces, user)
        found += await _metrics(door)
    except BrainError as why:
        found.append(Finding("bad", "the API server does not answer", str(why)))
    found += await _gpus(prometheus)
    return found


def say(findings: Iterable[Finding]) -> int:
    """Print findings as JSON lines; return 1 if a finding reports a broken part, else 0."""
    broken = False
    for finding in findings:
        print(json.dumps(asdict(finding)))  # noqa: T201
        broken |= finding.level == "bad"
    return int(broken)


async def _rights(door: Door, namespaces: Sequence[str], user: str | None) -> list[Finding]:
    found = []
    for verb, group, resource, source, needed in _RIGHTS:
        for namespace in ("",) if resource in _OF_CLUSTER else tuple(namespaces) or ("",):
            wanted = {"verb": verb, "group": group, "resource": resource}
            if await _may(door, wanted | ({"namespace": namespace} if namespace else {}), user):
                continue
            right = f"{verb} {resource}" + (f".{group}" if group else "")
            said = (f"the collector lacks the permission to {right}") + (
                f" in {namespace}" if namespace else ""
            )
            found.append(Finding("bad" if needed else "note", said, REMEDIES[source]))
    return found or [
        Finding("ok", f"{user or 'this account'} has all permissions that the collector needs")
    ]


async def _may(door: Door, wanted: Mapping[str, str], user: str | None) -> bool:
    kind = "SelfSubjectAccessReview" if user is None else "SubjectAccessReview"
    spec: dict[str, object] = {"resourceAttributes": wanted}
    if user is not None:
        spec |= {"user": user, "groups": ["system:serviceaccounts", "system:authenticated"]}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {},
        "spec": spec,
    }
    answer = await door.post(f"{_REVIEWS}/{kind.lower()}s", review)
    return bool((answer.get("status") or {}).get("allowed"))


async def _metrics(door: Door) -> list[Finding]:
    if await _serves(door, f"/{METRICS}", "pods"):
        return [Finding("ok", "metrics-server answers")]
    return [Finding("note", "the cluster does not serve metrics.k8s.io", REMEDIES["usage"])]


async def _serves(door: Door, path: str, resource: str) -> bool:
    try:
        said = await door.get(path)
    except NotFound:
        return False
    return any(each.get("name") == resource for each in said.get("resources") or ())


async def _gpus(prometheus: httpx2.AsyncClient | None) -> list[Finding]:
    if prometheus is None:
        return [
            Finding(
                "note", "--prometheus is not set, so there are no GPU readings", REMEDIES["gpu"]
            )
        ]
    try:
        said = await prometheus_query(prometheus, "DCGM_FI_DEV_GPU_UTIL")
    except BrainError as why:
        return [Finding("bad", f"Prometheus: {why}", REMEDIES["gpu"])]
    series = [each.get("metric") or {} for each in (said.get("data") or {}).get("result") or ()]
    if not series:
        return [Finding("note", "Prometheus has no metric DCGM_FI_DEV_GPU_UTIL", REMEDIES["gpu"])]
    nameless = [each for each in series if not (each.get("exported_pod") or each.get("pod"))]
    if len(nameless) < len(series):
        return [Finding("ok", f"DCGM reports {len(series)} devices")]
    return [
        Finding(
            "note",
            f"none of {len(series)} DCGM series names a pod",
            "set DCGM_EXPORTER_KUBERNETES=true on dcgm-exporter and mount "
            "/var/lib/kubelet/pod-resources into it",
        )
    ]
