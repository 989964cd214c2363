"""The record: clusters as the API server gave them, and the scheduler's verdicts on their gangs."""

import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from scaler.kubernetes.pods import gang
from scaler.kubernetes.pods.fitting import NodeCapacity
from scaler.kubernetes.pods.identity import INDEX, RANK
from scaler.kubernetes.pods.placement import Capacity
from scaler.kubernetes.pods.trimming import trimmed
from scaler.kubernetes.runtime.store import Store

Json = dict[str, Any]
DATA = Path(__file__).with_name("kube-scheduler.jsonl.xz")
_METADATA = ("name", "namespace", "labels", "deletionTimestamp")
#: Fields by which the scheduler decides, of specs, of containers and of statuses.
_SPEC = (
    "affinity", "hostNetwork", "nodeName", "nodeSelector", "overhead", "priority", "resources",
    "taints", "tolerations", "topologySpreadConstraints", "unschedulable",
)  # fmt: skip
_CONTAINER = ("name", "ports", "resources", "restartPolicy")


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of the record."""

    #: As the API server tells it.
    kubernetes: str
    seed: int
    clusters: int


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A gang that our gate let in and held to nodes, for its pods want to be near each other."""

    #: Labels of these nodes.
    near: Mapping[str, str]
    #: How many of its pods the scheduler gave a node.
    bound: int


class Verdicts(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster, and how the scheduler judged the pods of its gang."""

    number: int
    nodes: Sequence[Json]
    #: Pods that had a node already.
    others: Sequence[Json]
    #: One of the gang; others differ in their names and ranks.
    pod: Json
    size: int
    #: Nodes that take one of the gang while it is alone.
    takes: Sequence[str]
    #: How many of the gang got a node when all were created at once, without gates.
    together: int
    #: None: the gate let none in, or held them to no nodes.
    opened: Opened | None

    def gang(self, gates: Sequence[str] = ()) -> list[Json]:
        """Return the pods of the gang, behind these gates."""
        return [self._member(id, gates) for id in range(self.size)]

    def _member(self, id: int, gates: Sequence[str]) -> Json:
        metadata = self.pod["metadata"]
        labels = metadata["labels"] | {INDEX: str(id), RANK: str(id)}
        named = {**metadata, "name": f"v{self.number}-{id}", "labels": labels}
        held = {"schedulingGates": [{"name": gate} for gate in gates]}
        return {"metadata": named, "spec": {**self.pod["spec"], **held}}


def capacity(nodes: Sequence[Json], others: Sequence[Json], waiting: Sequence[Json]) -> Capacity:
    """Return the capacity for pods that wait, by what the operator keeps of other pods.

    Nodes and pods are as the API server gives them.
    """
    there, pods = Store(), Store()
    pods.trim(trimmed)
    found = NodeCapacity(there, pods)
    for store, objects in ((there, nodes), (pods, others)):
        for each in objects:
            store.put(each)
    return found.capacity(waiting)


def admission(
    nodes: Sequence[Json], others: Sequence[Json], waiting: Sequence[Json]
) -> gang.Admission:
    """Return which of a gang, all of ``waiting``, our gate lets in."""
    room = capacity(nodes, others, waiting)
    return gang.admitted(waiting, 0, least=len(waiting), unit=1, capacity=room)


def kept(obj: Mapping[str, Any]) -> Json:
    """Return of a node or pod what decides about placing pods."""
    spec = _of(obj["spec"], _SPEC)
    for name in ("containers", "initContainers"):
        if obj["spec"].get(name):
            spec[name] = [_of(each, _CONTAINER) for each in obj["spec"][name]]
    status: Mapping[str, Any] = obj.get("status") or {}
    found = _of(status, ("allocatable", "phase"))
    if "allocatable" in status:
        found["conditions"] = [_of(each, ("type", "status")) for each in status["conditions"]]
    return {"metadata": _of(obj["metadata"], _METADATA), "spec": spec, "status": found}


def _of(obj: Mapping[str, Any], names: Sequence[str]) -> Json:
    return {name: obj[name] for name in names if obj.get(name) not in (None, {}, [])}


def save(source: Source, verdicts: Sequence[Verdicts], file: Path) -> None:
    """Write a record."""
    lines = msgspec.json.Encoder(order="deterministic").encode_lines([source, *verdicts])
    file.write_bytes(lzma.compress(lines, preset=9 | lzma.PRESET_EXTREME))


def load(file: Path = DATA) -> tuple[Source, list[Verdicts]]:
    """Read a record."""
    first, *lines = lzma.decompress(file.read_bytes()).splitlines()
    decode = msgspec.json.Decoder(Verdicts).decode
    return msgspec.json.decode(first, type=Source), [decode(line) for line in lines]
