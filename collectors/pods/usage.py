"""Parses the resource usage of nodes and pods that metrics-server or a kubelet reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from brain.errors import BadInput
from collectors.pods.quantities import millis, whole
from collectors.pods.sights import Object, instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Usage of a pod or node; ``at`` is the end of the measured window."""

    cpu_millis: int
    #: Working set: used memory without the file cache that the kernel can drop.
    memory_bytes: int
    #: Bytes since the pod or node started; None if the source does not count them.
    received_bytes: int | None = None
    sent_bytes: int | None = None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUse:
    """Usage of a pod, with its name; ``uid`` is None if the source does not report it."""

    namespace: str
    name: str
    uid: str | None = None
    use: Use


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReading:
    """One reading of all pods and nodes."""

    nodes: Mapping[str, Use]
    pods: Sequence[PodUse]
    #: Number of items that could not be parsed.
    unreadable: int = 0


def of_metrics_server(nodes: Object, pods: Object) -> UsageReading:
    """Read ``NodeMetricsList`` and ``PodMetricsList`` of metrics.k8s.io/v1beta1."""
    found: dict[str, Use] = {}
    listed: list[PodUse] = []
    unreadable = 0
    for each in nodes.get("items") or ():
        try:
            found[each["metadata"]["name"]] = _metered([each], each)
        except (BadInput, KeyError):
            unreadable += 1
    for each in pods.get("items") or ():
        try:
            meta = each["metadata"]
            use = _metered(each.get("containers") or (), each)
            listed.append(PodUse(namespace=meta["namespace"], name=meta["name"], use=use))
        except (BadInput, KeyError):
            unreadable += 1
    return UsageReading(nodes=found, pods=listed, unreadable=unreadable)


def of_summary(summaries: Sequence[Object]) -> UsageReading:
    """Read the ``/stats/summary`` of kubelets, one per node."""
    found: dict[str, Use] = {}
    listed: list[PodUse] = []
    unreadable = 0
    for summary in summaries:
        node = summary.get("node") or {}
        try:
            found[node["nodeName"]] = _summed(node)
        except (BadInput, KeyError):
            unreadable += 1
        for each in summary.get("pods") or ():
            try:
                ref = each["podRef"]
                use = _summed(each)
                listed.append(
                    PodUse(
                        namespace=ref["namespace"], name=ref["name"], uid=ref.get("uid"), use=use
                    )
                )
            except (BadInput, KeyError):
                unreadable += 1
    return UsageReading(nodes=found, pods=listed, unreadable=unreadable)


def _metered(parts: Sequence[Object], item: Object) -> Use:
    at = instant(item.get("timestamp"))
    if at is None:
        raise BadInput("timestamp is missing", field="timestamp")
    return Use(
        cpu_millis=sum(millis(each["usage"]["cpu"]) for each in parts),
        memory_bytes=sum(whole(each["usage"]["memory"]) for each in parts),
        # The window ends at the timestamp; what is measured is measured by then.
        at=at,
    )


def _summed(item: Object) -> Use:
    cpu, memory = item["cpu"], item["memory"]
    at = instant(cpu.get("time"))
    if at is None:
        raise BadInput("cpu.time is missing", field="cpu.time")
    network: Mapping[str, Any] = item.get("network") or {}
    return Use(
        cpu_millis=round(int(cpu["usageNanoCores"]) / 1e6),
        memory_bytes=int(memory["workingSetBytes"]),
        received_bytes=_counter(network.get("rxBytes")),
        sent_bytes=_counter(network.get("txBytes")),
        at=at,
    )


def _counter(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) else None


def rate(before: int | None, after: int | None, span: timedelta) -> float:
    """Return the bytes per second between two readings of a counter; 0 if a reading is missing or
    the counter was reset.
    """
    seconds = span.total_seconds()
    if before is None or after is None or after < before or seconds <= 0:
        return 0.0
    return (after - before) / seconds
