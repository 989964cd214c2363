"""Placeholder pods, which fit no present node on purpose, so that an autoscaler adds nodes for a
job.

An autoscaler of the cluster considers pods that fit no node, but not pods behind a scheduling gate.
So placeholder pods stand for replicas: as many as would not fit on the present nodes even if these
were empty. Placeholder pods have the requests of replicas, and exclude the present nodes. They
occupy new nodes until the job's own pods can use these nodes.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from brain.types.resources import Resources
from scaler.kubernetes.kinds import ElasticJob
from scaler.kubernetes.kinds.documents.templates import main_container, pod_requests, reserved
from scaler.kubernetes.kinds.fields import QUEUE
from scaler.kubernetes.pods import identity
from scaler.kubernetes.pods.orders import specimen
from scaler.kubernetes.runtime.cluster.kind import Object
from scaler.ports import NOTHING

#: Label of pods that ask for nodes: the uid of the job.
ASKS = f"{identity.DOMAIN}/asks-for"
_HOST = "kubernetes.io/hostname"
_OVER = ("Succeeded", "Failed")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
#: Labels by which other code takes pods for replicas, and the label by which Kueue queues pods.
_REPLICA = frozenset(
    {
        identity.UID,
        identity.OBJECT,
        identity.TYPE,
        identity.INDEX,
        identity.RANK,
        identity.RELAUNCHES,
        QUEUE,
    }
)
#: Fields of a template that decide about a pod's node, its image, and its admission.
_PLACING = (
    "affinity",
    "imagePullSecrets",
    "nodeSelector",
    "priorityClassName",
    "runtimeClassName",
    "schedulerName",
    "securityContext",
    "tolerations",
    "topologySpreadConstraints",
)


def asking_index(pod: Object) -> tuple[str, ...]:
    """Index placeholder pods by their job."""
    uid = (pod["metadata"].get("labels") or {}).get(ASKS)
    return (uid,) if uid else ()


def asking_on_index(pod: Object) -> tuple[str, ...]:
    """Index placeholder pods by the node on which they run."""
    node = pod["spec"].get("nodeName")
    return (node,) if node and asking_index(pod) else ()


def asking(
    job: ElasticJob, group: str, number: int, off: Sequence[Object], image: str | None
) -> Object:
    """Build the ``number``-th placeholder pod of a job, for a replica of ``group``.

    The pod excludes the nodes ``off``. ``image`` is an image with a shell; None means the main
    container's image.
    """
    like, metadata = specimen(job, group), job.metadata
    spec: Mapping[str, Any] = like["spec"]
    main = main_container({"spec": spec})
    amounts = {name: f"{amount:f}" for name, amount in pod_requests(spec).items()}
    devices = {name: amount for name, amount in amounts.items() if "/" in name}
    container = {
        "name": "asks",
        "image": image or main["image"],
        "command": ["sleep", "infinity"],
        "resources": {"requests": amounts, "limits": devices},
        "securityContext": main.get("securityContext") or {},
    }
    labels = {k: v for k, v in like["metadata"]["labels"].items() if k not in _REPLICA}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{metadata.name}-edljob-asks-{number}",
            "namespace": metadata.namespace,
            "labels": labels | {ASKS: metadata.uid},
            "ownerReferences": [identity.owner(metadata.name, metadata.uid)],
        },
        "spec": _elsewhere({name: spec[name] for name in _PLACING if name in spec}, off)
        | {
            "containers": [container],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
        },
    }


def _elsewhere(spec: Mapping[str, Any], off: Sequence[Object]) -> dict[str, Any]:
    """Return the spec of a pod that goes to none of these nodes."""
    hosts = [(node["metadata"].get("labels") or {}).get(_HOST) for node in off]
    if not (hosts := [host for host in hosts if host]):
        return dict(spec)
    affinity = deepcopy(dict(spec.get("affinity") or {}))
    required = affinity.setdefault("nodeAffinity", {}).setdefault(_REQUIRED, {})
    never = {"key": _HOST, "operator": "NotIn", "values": sorted(hosts)}
    for term in required.setdefault("nodeSelectorTerms", [{}]):
        term["matchExpressions"] = [*(term.get("matchExpressions") or ()), never]
    return {**spec, "affinity": affinity}


def reserves(pod: Object) -> Resources:
    """Return the resources that other pods cannot use because of this pod; none once it has ended.

    A pod that requests a node which does not exist yet reserves no resources.
    """
    over = (pod.get("status") or {}).get("phase") in _OVER
    asks = asking_index(pod) and not (pod.get("spec") or {}).get("nodeName")
    return NOTHING if over or asks else reserved(pod)
