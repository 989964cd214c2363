"""Reads every source once per round. If a source fails, the error and the remedy are reported, and
the other sources are still read.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote

import httpx2

from brain.errors import BadInput, BrainError, NotAllowed, NotFound, Unavailable
from brain.types.job import JobId
from collectors.pods.dcgm import QUERY, PodDevice, devices
from collectors.pods.door import Door
from collectors.pods.identity import ClusterJob, ClusterJobs
from collectors.pods.sights import NodeSight, Object, PodSight, instant, node, pod
from collectors.pods.usage import UsageReading, of_metrics_server, of_summary
from collectors.pods.watching import Passing

#: Kinds of jobs: the path of the group and version, the plural, and the kind.
JOB_KINDS = (
    ("apis/elastic.iml.github.io/v1alpha1", "elasticjobs", "ElasticJob"),
    ("apis/kubeflow.org/v1", "pytorchjobs", "PyTorchJob"),
    ("apis/jobset.x-k8s.io/v1alpha2", "jobsets", "JobSet"),
)
#: Conditions and phases of a job's object that mean that the job has ended.
_OVER = ("Succeeded", "Failed", "Complete", "Completed", "Cancelled")
#: ``spec.managedBy`` of jobs that DLRover's own master runs.
_DLROVER = "dlrover"
METRICS = "apis/metrics.k8s.io/v1beta1"
#: Kubelets that are read at the same time.
_KUBELETS_AT_ONCE = 16
#: Most seconds for the answer of one kubelet, and of all kubelets together; the liveness probe
#: allows a round five minutes.
_KUBELET_SECONDS, _KUBELETS_SECONDS = 10.0, 60.0
#: Remedies by the name of the source.
REMEDIES: Mapping[str, str] = {
    "nodes": "grant `list` on nodes: kubectl apply -k deploy/kustomize/cluster-wide",
    "pods": "grant `list` on pods: kubectl apply -k deploy/kustomize/cluster-wide",
    "watch": "grant `watch` on pods: kubectl apply -k deploy/kustomize/cluster-wide",
    "jobs": (
        "grant `list` on elasticjobs.elastic.iml.github.io, pytorchjobs.kubeflow.org and "
        "jobsets.jobset.x-k8s.io"
    ),
    "usage": (
        "install metrics-server (`kubectl top pods` must work) and grant `list` on "
        "pods.metrics.k8s.io and nodes.metrics.k8s.io; or grant `get` on nodes/proxy"
    ),
    "gpu": (
        "give --prometheus the URL of a Prometheus that scrapes dcgm-exporter; "
        "DCGM_FI_DEV_GPU_UTIL and DCGM_FI_DEV_FB_USED must be among its metrics"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTrouble:
    """A source that cannot be read, with its error and the remedy."""

    source: str
    why: str
    remedy: str


@dataclass(slots=True)
class SourcesRead:
    """The results of one round; ``pods`` or ``usage`` is None if it could not be read."""

    pods: Sequence[PodSight] | None = None
    #: Pods that the watch saw since the last round, and that are no longer listed.
    passed: Sequence[PodSight] = ()
    nodes: Mapping[str, NodeSight] = field(default_factory=dict)
    jobs: ClusterJobs = field(default_factory=ClusterJobs)
    usage: UsageReading | None = None
    devices: Sequence[PodDevice] = ()
    troubles: list[SourceTrouble] = field(default_factory=list)


class TelemetrySources:
    """Reads the API server, and Prometheus if one is configured."""

    def __init__(
        self,
        door: Door,
        *,
        namespaces: Sequence[str] = (),
        prometheus: httpx2.AsyncClient | None = None,
    ) -> None:
        self._door, self._namespaces, self._prometheus = door, tuple(namespaces), prometheus
        self._passing = Passing(door, self._paths("api/v1", "pods"))
        #: Nodes whose kubelets did not answer when they were last asked, in the order of asking.
        self._silent: dict[str, None] = {}

    async def hear(self) -> None:
        """Watch pods between two rounds, until cancelled."""
        await self._passing.run()

    async def look(self) -> SourcesRead:
        """Read all sources; the result lists the errors of sources, and none is raised."""
        found, heard = SourcesRead(), self._passing.taken()
        try:
            found.pods = _readable(pod, await self._all("api/v1", "pods"), "pods", found)
        except BrainError as why:
            found.troubles.append(_trouble("pods", why))
            return found
        listed = {each.uid for each in found.pods or ()}
        found.passed = [each for each in heard if each.uid not in listed]
        if self._passing.trouble is not None:
            found.troubles.append(_trouble("watch", self._passing.trouble))
        await self._nodes(found)
        await self._jobs(found)
        await self._usage(found)
        await self._devices(found)
        return found

    async def _nodes(self, found: SourcesRead) -> None:
        try:
            listed = await self._door.items("/api/v1/nodes")
            found.nodes = {each.name: each for each in _readable(node, listed, "nodes", found)}
        except BrainError as why:
            found.troubles.append(_trouble("nodes", why))

    async def _jobs(self, found: SourcesRead) -> None:
        known: list[ClusterJob] = []
        for group, plural, kind in JOB_KINDS:
            try:
                listed = await self._all(group, plural)
                known += _readable(partial(_known, kind), listed, "jobs", found)
            except NotFound:
                # A kind that is not installed has no jobs.
                continue
            except BrainError as why:
                found.troubles.append(_trouble("jobs", why))
        found.jobs = ClusterJobs(known)

    async def _usage(self, found: SourcesRead) -> None:
        try:
            nodes = await self._door.get(f"/{METRICS}/nodes")
            pods = [await self._door.get(path) for path in self._paths(METRICS, "pods")]
            # A list of nothing may be null.
            listed = [each for page in pods for each in page["items"] or ()]
            found.usage = of_metrics_server(nodes, {"items": listed})
        except (BrainError, KeyError) as none:
            await self._summaries(found, none)
        if found.usage is not None and found.usage.unreadable:
            why = BadInput(f"the usage of {found.usage.unreadable} pods or nodes cannot be read")
            found.troubles.append(_trouble("usage", why))

    async def _summaries(self, found: SourcesRead, first: Exception) -> None:
        """Read the kubelets, because metrics-server cannot be read; silent ones are read last."""
        self._silent = {name: None for name in self._silent if name in found.nodes}
        names = [*(name for name in found.nodes if name not in self._silent), *self._silent]
        summaries, why = await self._kubelets(names)
        if summaries:
            found.usage = of_summary(list(summaries.values()))
            if missing := len(names) - len(summaries):
                said = f"{missing} of {len(names)} kubelets were not read: {why}"
                found.troubles.append(_trouble("usage", Unavailable(said)))
        else:
            both = Unavailable(f"{first}; {why}" if why else str(first))
            found.troubles.append(_trouble("usage", both))

    async def _kubelets(self, names: Sequence[str]) -> tuple[dict[str, Object], Exception | None]:
        """Return the summaries of the kubelets that answer in time, by node, and the last error."""
        summaries: dict[str, Object] = {}
        why: Exception | None = None
        waiting = iter(names)

        async def read() -> None:
            nonlocal why
            for name in waiting:
                path = f"/api/v1/nodes/{quote(name, safe='')}/proxy/stats/summary"
                self._silent.pop(name, None)
                self._silent[name] = None
                try:
                    async with asyncio.timeout(_KUBELET_SECONDS):
                        summaries[name] = await self._door.get(path)
                    del self._silent[name]
                except TimeoutError:
                    why = Unavailable(f"{path}: no answer within {_KUBELET_SECONDS:g} s")
                except NotAllowed as refused:
                    # The others would be refused, too.
                    why = refused
                    return
                except BrainError as away:
                    why = away

        try:
            async with asyncio.timeout(_KUBELETS_SECONDS), asyncio.TaskGroup() as readers:
                for _ in range(_KUBELETS_AT_ONCE):
                    readers.create_task(read())
        except TimeoutError:
            last = f"; {why}" if why else ""
            why = Unavailable(f"{_KUBELETS_SECONDS:g} s did not suffice for all{last}")
        return summaries, why

    async def _devices(self, found: SourcesRead) -> None:
        if self._prometheus is None:
            if any(pod.requests.gpus for pod in found.pods or ()):
                said = Unavailable("pods request GPUs, but --prometheus is not set")
                found.troubles.append(_trouble("gpu", said))
            return
        try:
            answer = await prometheus_query(self._prometheus, QUERY)
        except BrainError as why:
            found.troubles.append(_trouble("gpu", why))
            return
        found.devices = devices(answer, _places(found))
        if not found.devices and any(each.allocatable.gpus for each in found.nodes.values()):
            said = Unavailable("Prometheus has no DCGM series for any node of this cluster")
            found.troubles.append(_trouble("gpu", said))

    async def _all(self, group: str, plural: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for path in self._paths(group, plural):
            found += await self._door.items(path)
        return found

    def _paths(self, group: str, plural: str) -> list[str]:
        spaces = [f"namespaces/{quote(each, safe='')}/" for each in self._namespaces] or [""]
        return [f"/{group}/{space}{plural}" for space in spaces]


async def prometheus_query(client: httpx2.AsyncClient, query: str) -> dict[str, Any]:
    """Return the answer of Prometheus to an instant query.

    Raises:
        Unavailable: Prometheus cannot be reached, or refuses the query.
    """
    try:
        answer = await client.get("/api/v1/query", params={"query": query})
        said = answer.json() if answer.status_code < 500 else {}
    except (httpx2.HTTPError, ValueError) as silent:
        raise Unavailable(f"{client.base_url}: {silent or type(silent).__name__}") from silent
    if answer.status_code >= 400 or not isinstance(said, dict) or said.get("status") != "success":
        error = said.get("error", "") if isinstance(said, dict) else ""
        raise Unavailable(f"{client.base_url}: HTTP {answer.status_code} {error}".rstrip())
    return said


def _readable(read: Any, listed: Iterable[Object], source: str, found: SourcesRead) -> list[Any]:
    """Return the parsed objects of a list; report an object that cannot be parsed."""
    made, odd = [], None
    for each in listed:
        try:
            made.append(read(each))
        except BadInput as bad:
            odd = bad
    if odd is not None:
        found.troubles.append(_trouble(source, odd))
    return made


def _known(kind: str, obj: Object) -> ClusterJob:
    meta, status = obj.get("metadata") or {}, obj.get("status") or {}
    conditions = [
        each
        for each in status.get("conditions") or ()
        if each.get("type") in _OVER and each.get("status") == "True"
    ]
    ended = [instant(status.get("completionTime"))]
    ended += [instant(each.get("lastTransitionTime")) for each in conditions]
    created_at = instant(meta.get("creationTimestamp"))
    if created_at is None:
        raise BadInput(
            f"{kind} {meta.get('name')!r} has no creationTimestamp", field="creationTimestamp"
        )
    return ClusterJob(
        job=JobId(meta.get("uid", "")),
        kind=kind,
        namespace=meta.get("namespace", ""),
        name=meta.get("name", ""),
        created_at=created_at,
        ended_at=next((at for at in ended if at is not None), None),
        advised=(obj.get("spec") or {}).get("managedBy") == _DLROVER,
    )


def _places(found: SourcesRead) -> dict[str, str]:
    """Return the node's name by each text with which a series may identify the node."""
    places = {name: name for name in found.nodes}
    for each in found.nodes.values():
        places |= dict.fromkeys(each.addresses - {""}, each.name)
    for one in found.pods or ():
        # The exporter's pod: its address, and its name as Hostname, stand for its node.
        if one.node and "dcgm" in one.name:
            places[one.name] = one.node
            if one.address:
                places[one.address] = one.node
    return places


def _trouble(source: str, why: Exception) -> SourceTrouble:
    return SourceTrouble(source=source, why=str(why), remedy=REMEDIES[source])
