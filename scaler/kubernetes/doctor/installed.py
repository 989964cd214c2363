"""Examines the installed kinds, and the node labels from which ranks and accelerators are read."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from brain.errors import NotFound
from brain.types.accelerators import PRODUCT_LABELS
from brain.types.finding import Finding
from scaler.kubernetes.kinds.fields import GROUP
from scaler.kubernetes.runtime.cluster import NODE, Cluster, Object

_CRDS = "brain migrate --crds"
#: Features of our served kinds; DLRover's own kinds lack some.
_SERVED = {
    "elasticjobs": "the API server does not know ElasticJobs",
    "elasticjobs/status": "the operator cannot write the status of a job",
    "elasticjobs/scale": "`kubectl scale` does not work",
    "scaleplans": "the API server does not know ScalePlans",
    "scaleplans/status": "the operator cannot write the status of a plan",
}
_ZONE = "topology.kubernetes.io/zone"
#: First Kubernetes version with scheduling gates on by default.
_LEAST = (1, 27)


def examine(cluster: Cluster) -> Iterator[Finding]:
    """Examine version, kinds, gangs and nodes."""
    yield from _version(cluster.read("/version"))
    yield from _kinds(cluster)
    yield from _gangs(cluster)
    yield from nodes(all_nodes(cluster))


def all_nodes(cluster: Cluster) -> Sequence[Object]:
    """Return the nodes of all pages."""
    page = cluster.list(NODE)
    found = list(page.items)
    while page.continue_:
        page = cluster.list(NODE, continue_=page.continue_)
        found += page.items
    return found


def nodes(found: Sequence[Object]) -> Iterator[Finding]:
    """Report missing labels of nodes."""
    if not found:
        yield Finding(
            "bad", "the cluster has no nodes", "add a node, or check the cluster's autoscaler"
        )
        return
    with_gpus = [each for each in found if _gpus(each)]
    bare = [_name(each) for each in with_gpus if not _has(each, PRODUCT_LABELS)]
    if bare:
        yield Finding(
            "note",
            f"{_some(bare)} with GPUs: no label names the GPU product ({PRODUCT_LABELS[0]})",
            "run the GPU vendor's node labeller, or label the nodes by hand; until then Brain "
            "cannot distinguish GPU products",
        )
    zoneless = [_name(each) for each in found if not _has(each, (_ZONE,))]
    if zoneless and len(found) > 1:
        yield Finding(
            "note",
            f"{_some(zoneless)}: no label {_ZONE}",
            f"kubectl label node {zoneless[0]} {_ZONE}=<zone>; until then Brain orders ranks by "
            "node name",
        )
    idle = [_name(each) for each in found if not _ready(each)]
    if idle:
        yield Finding("note", f"{_some(idle)}: not ready", "kubectl describe node " + idle[0])
    if not (bare or zoneless or idle):
        yield Finding("ok", f"{len(found)} nodes are ready and labelled")


def _version(said: Mapping[str, Any]) -> Iterator[Finding]:
    text = str(said.get("gitVersion", "of an unknown version"))
    major, minor = (str(said.get(part, "0")).rstrip("+") for part in ("major", "minor"))
    new = (int(major), int(minor)) >= _LEAST if major.isdecimal() and minor.isdecimal() else False
    yield (
        Finding("ok", f"Kubernetes {text} answers")
        if new
        else Finding(
            "bad",
            f"Kubernetes {text} has no scheduling gates",
            "upgrade to 1.27 or later; until then a job that waits for nodes may hold GPUs",
        )
    )


def _kinds(cluster: Cluster) -> Iterator[Finding]:
    served = _resources(cluster, f"/apis/{GROUP}/v1alpha1")
    missing = [name for name in _SERVED if name not in served]
    for name in missing:
        yield Finding(
            "bad", f"the API server does not serve {name}.{GROUP}: {_SERVED[name]}", _CRDS
        )
    if not missing:
        yield Finding("ok", "ElasticJob and ScalePlan are installed")


def _gangs(cluster: Cluster) -> Iterator[Finding]:
    if "podgroups" in _resources(cluster, "/apis/scheduling.volcano.sh/v1beta1"):
        yield Finding("ok", "Volcano admits the gangs of jobs with `BatchScheduler: volcano`")
    else:
        yield Finding(
            "ok", "the operator admits gangs by scheduling gates; Volcano is not installed"
        )


def _resources(cluster: Cluster, path: str) -> set[str]:
    try:
        said = cluster.read(path)
    except NotFound:
        return set()
    return {str(each.get("name")) for each in said.get("resources") or ()}


def _gpus(node: Object) -> bool:
    amounts = (node.get("status") or {}).get("allocatable") or {}
    return any(name.endswith("/gpu") and str(count) != "0" for name, count in amounts.items())


def _has(node: Object, labels: Sequence[str]) -> bool:
    found = node["metadata"].get("labels") or {}
    return any(label in found for label in labels)


def _ready(node: Object) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any((c.get("type"), c.get("status")) == ("Ready", "True") for c in conditions)


def _name(node: Object) -> str:
    return str(node["metadata"]["name"])


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    noun = "node" if len(names) == 1 else "nodes"
    return f"{len(names)} {noun} ({shown}{', …' if len(names) > 3 else ''})"
