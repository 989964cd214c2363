"""Combines all sources into one reading for each job on each node: the sum over the job's pods."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from brain.types.job import JobId
from brain.types.resources import NodeName
from brain.types.telemetry import GpuReading, HostSample
from collectors.pods.dcgm import DevicesByPod
from collectors.pods.identity import PodStay, Stays
from collectors.pods.sights import NodeSight
from collectors.pods.usage import PodUse, UsageReading, Use, rate
from collectors.stamps import Stamps

#: Why samples have no disk counters.
_NO_DISK = "disk: neither metrics-server nor a kubelet reports the disk traffic of pods"
_NO_NETWORK = (
    "network: metrics-server reports no traffic; let the collector `get` nodes/proxy, so that "
    "it can read kubelets"
)

Place = tuple[JobId, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReading:
    """A reading of one job on one node."""

    job: JobId
    node: str
    at: datetime
    node_use: Use
    capacity: NodeSight
    cpu_millis: int
    memory_bytes: int
    gpus: tuple[GpuReading, ...] = ()
    unavailable: tuple[str, ...] = ()


def readings(
    usage: UsageReading, shared: DevicesByPod, stays: Stays, nodes: Mapping[str, NodeSight]
) -> list[JobReading]:
    """Add up the usage of each job's pods on each node; return one reading per job and node.

    Pods with Brain's agent, pods without a job and unknown nodes are left out; an agent measures
    its own pod. A value that was not measured is None.
    """
    parts: dict[Place, list[tuple[PodStay, PodUse]]] = {}
    for each in usage.pods:
        stay = _meant(each, stays)
        if stay is None or stay.job is None or stay.pod.injected or stay.pod.node is None:
            continue
        if stay.pod.node in nodes and stay.pod.node in usage.nodes:
            parts.setdefault((stay.job, stay.pod.node), []).append((stay, each))
    return [
        _reading(place, pods, usage.nodes[place[1]], nodes[place[1]], shared)
        for place, pods in sorted(parts.items())
    ]


def _meant(pod: PodUse, stays: Stays) -> PodStay | None:
    if pod.uid is not None:
        return stays.all.get(pod.uid)
    return stays.at(pod.namespace, pod.name, pod.use.at)


def _reading(
    place: Place,
    pods: Iterable[tuple[PodStay, PodUse]],
    node_use: Use,
    capacity: NodeSight,
    shared: DevicesByPod,
) -> JobReading:
    pairs = list(pods)
    gpus = [gpu for stay, _ in pairs for gpu in shared.of.get(stay.pod.uid, ())]
    wants = any(stay.pod.requests.gpus for stay, _ in pairs)
    why = shared.unknown.get(place[1]) or "no exporter reports these GPUs"
    missing = (f"gpu: {why}",) if wants and not gpus else ()
    network = () if node_use.received_bytes is not None else (_NO_NETWORK,)
    return JobReading(
        job=place[0],
        node=place[1],
        at=max(use.use.at for _, use in pairs),
        node_use=node_use,
        capacity=capacity,
        cpu_millis=sum(use.use.cpu_millis for _, use in pairs),
        memory_bytes=sum(use.use.memory_bytes for _, use in pairs),
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.index)),
        unavailable=(*missing, *network, _NO_DISK),
    )


@dataclass(slots=True)
class _Last:
    stamps: Stamps
    at: datetime | None = None
    node_use: Use | None = None


class Samples:
    """Makes samples from readings; a reading that is not newer than the last one is ignored."""

    def __init__(self) -> None:
        self._last: dict[Place, _Last] = {}

    def of(self, found: Iterable[JobReading]) -> list[HostSample]:
        """Return the samples that one round of readings gives."""
        made = []
        kept: dict[Place, _Last] = {}
        for reading in found:
            place = reading.job, reading.node
            last = kept[place] = self._last.get(place) or _Last(Stamps())
            if last.at is None or reading.at > last.at:
                made.append(_sample(reading, last))
                last.at, last.node_use = reading.at, reading.node_use
        # A job that left a node and comes back begins a new source.
        self._last = kept
        return made


def _sample(reading: JobReading, last: _Last) -> HostSample:
    source, measured_at, sequence = last.stamps.next(reading.at)
    capacity = reading.capacity.allocatable
    return HostSample(
        job=reading.job,
        source=source,
        node=NodeName(reading.node),
        measured_at=measured_at,
        sequence=sequence,
        cpu_millis=reading.node_use.cpu_millis,
        cpu_capacity_millis=capacity.cpu_millis,
        memory_bytes=reading.node_use.memory_bytes,
        memory_capacity_bytes=capacity.memory_bytes,
        job_cpu_millis=reading.cpu_millis,
        job_memory_bytes=reading.memory_bytes,
        disk_read_bytes_per_second=0.0,
        disk_write_bytes_per_second=0.0,
        gpus=reading.gpus,
        unavailable=reading.unavailable,
        **_network(reading.node_use, last.node_use),
    )


def _network(after: Use, before: Use | None) -> dict[str, Any]:
    if before is None:
        return {"network_receive_bytes_per_second": 0.0, "network_send_bytes_per_second": 0.0}
    span = after.at - before.at
    return {
        "network_receive_bytes_per_second": rate(before.received_bytes, after.received_bytes, span),
        "network_send_bytes_per_second": rate(before.sent_bytes, after.sent_bytes, span),
    }
