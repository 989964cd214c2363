"""Reads accelerators, and the pods that use them, from NVIDIA's DCGM exporter through Prometheus.

This module converts percent and MiB. It also handles special "blank" values, labels that Prometheus
renamed (``exported_pod``), duplicate series of two Prometheus servers, MIG instances (for which the
utilization of the engine is used), and exporters that name no pod.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from brain.types.telemetry import GpuReading
from collectors.pods.identity import PodStay, Stays

#: Query for all metrics that this module uses.
QUERY = (
    '{__name__=~"DCGM_FI_DEV_GPU_UTIL|DCGM_FI_PROF_GR_ENGINE_ACTIVE|DCGM_FI_DEV_FB_USED|'
    "DCGM_FI_DEV_FB_FREE|DCGM_FI_DEV_FB_RESERVED|DCGM_FI_DEV_POWER_USAGE|"
    'DCGM_FI_DEV_GPU_TEMP"}'
)
#: DCGM's blank values: 64-bit integers and floating-point numbers from these on.
_BLANK_INT, _BLANK_FLOAT = float(0x7FFF_FFFF_FFFF_FFF0), 140737488355328.0
_MIB = 1 << 20
#: Labels that may name the node, the most reliable first; the last one is an address and a port.
_NODE_LABELS = ("exported_node", "node", "Hostname", "kubernetes_node", "hostname")
_REMEDY = (
    "set DCGM_EXPORTER_KUBERNETES=true on dcgm-exporter and mount the host's "
    "/var/lib/kubelet/pod-resources into it; declare GPUs in the limits of pods"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDevice:
    """A reading of one accelerator, or of one MIG instance."""

    node: str
    uuid: str
    #: MIG instance of a partitioned device; empty for a whole device.
    instance: str
    #: Namespace and name of the pod that uses the device; None if the exporter names none.
    pod: tuple[str, str] | None
    reading: GpuReading
    at: datetime


@dataclass(slots=True)
class _Gathered:
    index: int
    model: str
    node: str
    pod: tuple[str, str] | None
    at: float = 0.0
    values: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesByPod:
    """Devices of each pod, and devices without a pod."""

    #: Devices of each pod, by the pod's uid.
    of: Mapping[str, tuple[GpuReading, ...]]
    #: Remedy by node, for nodes whose devices cannot be assigned to pods.
    unknown: Mapping[str, str]


def devices(answer: Mapping[str, Any], nodes: Mapping[str, str]) -> list[PodDevice]:
    """Read the answer to ``QUERY`` (Prometheus' ``/api/v1/query``).

    Args:
        nodes: maps each text with which a series may identify a node to the node's name. The texts
            are the name, an address, and the name or address of the exporter's pod.
    """
    gathered: dict[tuple[str, str, str], _Gathered] = {}
    for series in (answer.get("data") or {}).get("result") or ():
        labels: Mapping[str, str] = series.get("metric") or {}
        sample: Sequence[Any] = series.get("value") or ()
        node = _node(labels, nodes)
        if node is None or len(sample) != 2 or (value := _value(sample[1])) is None:
            continue
        key = (node, labels.get("UUID", labels.get("gpu", "")), labels.get("GPU_I_ID", ""))
        device = gathered.setdefault(
            key,
            _Gathered(_index(labels), labels.get("modelName", "GPU"), node, _pod(labels)),
        )
        # Of a pair of Prometheus, the one that looked last.
        name = labels.get("__name__", "")
        if name not in device.values or float(sample[0]) >= device.at:
            device.values[name] = value
        device.at = max(device.at, float(sample[0]))
        device.pod = device.pod or _pod(labels)
    return [_device(key, each) for key, each in sorted(gathered.items()) if _usable(each)]


def shared(found: Iterable[PodDevice], stays: Stays) -> DevicesByPod:
    """Assign each device to the pod that uses it.

    If the exporter names no pod, the devices of a node are assigned only if one pod on the node
    requests all of them.
    """
    of: dict[str, list[GpuReading]] = {}
    nameless: dict[str, list[PodDevice]] = {}
    for device in found:
        stay = stays.at(*device.pod, device.at) if device.pod else None
        if stay is not None:
            of.setdefault(stay.pod.uid, []).append(device.reading)
        elif device.pod is None:
            nameless.setdefault(device.node, []).append(device)
    unknown: dict[str, str] = {}
    for node, left in nameless.items():
        holders = [s for s in stays.on(node, left[0].at) if s.pod.requests.gpus]
        if not holders:
            continue
        whole = _sole(holders, len(left))
        if whole is None:
            unknown[node] = f"the exporter on {node} does not name pods; {_REMEDY}"
        else:
            of.setdefault(whole.pod.uid, []).extend(device.reading for device in left)
    return DevicesByPod(of={uid: tuple(each) for uid, each in of.items()}, unknown=unknown)


def _sole(holders: Sequence[PodStay], count: int) -> PodStay | None:
    return holders[0] if len(holders) == 1 and holders[0].pod.requests.gpus == count else None


def _value(text: object) -> float | None:
    try:
        value = float(str(text))
    except ValueError:
        return None
    blank = value >= _BLANK_INT or (value >= _BLANK_FLOAT and value == int(value))
    return value if isfinite(value) and value >= 0 and not blank else None


def _node(labels: Mapping[str, str], nodes: Mapping[str, str]) -> str | None:
    for label in _NODE_LABELS:
        if (name := labels.get(label)) and name in nodes:
            return nodes[name]
    return nodes.get(labels.get("instance", "").rsplit(":", 1)[0])


def _pod(labels: Mapping[str, str]) -> tuple[str, str] | None:
    """Return a pod's namespace and name; Prometheus may rename these labels to ``exported_…``."""
    if "exported_pod" in labels or "exported_namespace" in labels:
        named = labels.get("exported_namespace", ""), labels.get("exported_pod", "")
    else:
        named = labels.get("namespace", ""), labels.get("pod", "")
        if "dcgm-exporter" in named[1] or labels.get("container", "").endswith("dcgm-exporter"):
            return None
    return named if all(named) else None


def _index(labels: Mapping[str, str]) -> int:
    text = labels.get("gpu", "0")
    return int(text) if text.isdigit() else 0


def _usable(device: _Gathered) -> bool:
    return "DCGM_FI_DEV_FB_USED" in device.values or "DCGM_FI_DEV_GPU_UTIL" in device.values


def _device(key: tuple[str, str, str], found: _Gathered) -> PodDevice:
    node, uuid, instance = key
    get = found.values.get
    used = get("DCGM_FI_DEV_FB_USED", 0.0)
    total = used + get("DCGM_FI_DEV_FB_FREE", 0.0) + get("DCGM_FI_DEV_FB_RESERVED", 0.0)
    engine, percent = get("DCGM_FI_PROF_GR_ENGINE_ACTIVE"), get("DCGM_FI_DEV_GPU_UTIL")
    by_engine = bool(instance) or percent is None
    utilization = (engine or 0.0) if by_engine else (percent or 0.0) / 100
    reading = GpuReading(
        index=found.index,
        name=found.model,
        utilization=min(1.0, utilization),
        memory_used_bytes=round(used * _MIB),
        memory_total_bytes=round(total * _MIB),
        power_watts=get("DCGM_FI_DEV_POWER_USAGE"),
        temperature_celsius=get("DCGM_FI_DEV_GPU_TEMP"),
    )
    return PodDevice(
        node=node,
        uuid=uuid,
        instance=instance,
        pod=found.pod,
        reading=reading,
        at=datetime.fromtimestamp(found.at, UTC),
    )
