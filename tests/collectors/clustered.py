"""Builders: objects as an API server lists them, and one that lists them."""

import asyncio
import json
from collections.abc import Coroutine, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from selectors import DefaultSelector
from typing import Any, TypeVar

import httpx2

from collectors.pods.door import Access, Door
from collectors.pods.identity import ClusterJob, ClusterJobs
from collectors.pods.sights import PodSight
from collectors.pods.sights import pod as pod_sight

T = TypeVar("T")
START = datetime(2026, 11, 21, 12, tzinfo=UTC)
JOB = "0198aaaa-0000-4000-8000-000000000001"


def at(seconds: float) -> datetime:
    """``seconds`` after the beginning."""
    return START + timedelta(seconds=seconds)


def stamp(seconds: float) -> str:
    """The same as the API writes it."""
    return at(seconds).isoformat().replace("+00:00", "Z")


def pod(
    name: str = "digits-edljob-worker-0",
    uid: str = "pod-0",
    *,
    born: float = 10,
    node: str | None = "n0",
    phase: str = "Running",
    labels: Mapping[str, str] | None = None,
    owner: Mapping[str, Any] | None = None,
    requests: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A Pod in the namespace ``team``."""
    container = {"name": "main", "resources": {"requests": dict(requests or {"cpu": "1"})}}
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": uid,
            "creationTimestamp": stamp(born),
            "labels": dict(labels or {}),
            "ownerReferences": [dict(owner)] if owner else [],
        },
        "spec": {"nodeName": node, "containers": [container]} | dict(spec or {}),
        "status": {"phase": phase} | dict(status or {}),
    }


def seen(*args: Any, **given: Any) -> PodSight:
    """The same, read."""
    return pod_sight(pod(*args, **given))


def node(name: str = "n0", *, gpus: int = 0, address: str = "10.0.0.1") -> dict[str, Any]:
    """A Node of 8 processors and 32 GiB."""
    allocatable = {"cpu": "8", "memory": "32Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    return {
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": "A100"} if gpus else {}},
        "spec": {},
        "status": {
            "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": address}],
        },
    }


def job(
    uid: str = JOB, name: str = "digits", *, born: float = 0, ended: float | None = None
) -> ClusterJob:
    """An ElasticJob in the namespace ``team``."""
    return ClusterJob(
        job=uid,  # type: ignore[arg-type]  # a NewType of str
        kind="ElasticJob",
        namespace="team",
        name=name,
        created_at=at(born),
        ended_at=None if ended is None else at(ended),
    )


def jobs(*known: ClusterJob) -> ClusterJobs:
    """What the API has; by default the one job."""
    return ClusterJobs(known or (job(),))


def metered(name: str, *, seconds: float, cpu: str, memory: str, **more: str) -> dict[str, Any]:
    """A PodMetrics of one container, or with no namespace a NodeMetrics."""
    usage = {"cpu": cpu, "memory": memory}
    meta = {"name": name} | more
    return {
        "metadata": meta,
        "timestamp": stamp(seconds),
        "window": "15s",
        "usage": usage,
        "containers": [{"name": "main", "usage": usage}],
    }


def series(metric: str, value: str, *, seconds: float = 20, **labels: str) -> dict[str, Any]:
    """One series of an instant vector."""
    return {"metric": {"__name__": metric} | labels, "value": [at(seconds).timestamp(), value]}


def vector(*found: Mapping[str, Any]) -> dict[str, Any]:
    """Prometheus' answer."""
    return {"status": "success", "data": {"resultType": "vector", "result": list(found)}}


class Listing(httpx2.AsyncBaseTransport):
    """Answers GET by path with what is in ``paths``: an object, a list of items, or a code.

    Access reviews are answered with yes but for ``denied`` resources.
    """

    def __init__(self, paths: Mapping[str, Any], *, denied: Sequence[str] = ()) -> None:
        self.paths, self.denied = dict(paths), frozenset(denied)
        self.asked: list[str] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        self.asked.append(path)
        if path.endswith("accessreviews"):
            wanted = json.loads(request.content)["spec"]["resourceAttributes"]
            allowed = wanted["resource"] not in self.denied
            return httpx2.Response(201, json={"status": {"allowed": allowed}})
        found = self.paths.get(path, 404)
        if isinstance(found, int):
            return httpx2.Response(found, json={"message": f"{path} answers {found}"})
        body = {"items": found} if isinstance(found, list) else found
        return httpx2.Response(200, json=body)

    def door(self) -> Door:
        """A door to it."""
        return Door(Access(url="http://api", token=lambda: ""), transport=self)

    def client(self) -> httpx2.AsyncClient:
        """A client of it, where it plays Prometheus."""
        return httpx2.AsyncClient(base_url="http://prometheus", transport=self)


class _Skipping(DefaultSelector):
    """A selector that waits for no time: what it would have waited has passed at once."""

    passed_seconds = 0.0

    def select(self, timeout: float | None = None) -> Any:
        """Return what is ready."""
        assert timeout is not None, "everything waits, and for no time"
        ready = super().select(0)
        if timeout and not ready:
            self.passed_seconds += timeout
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose clock moves only while everything waits; for transports without sockets."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        """Return the seconds since the loop was made."""
        return self._skipping.passed_seconds


def waited(act: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """The result of a coroutine, and the seconds that it waited."""
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        return runner.run(act), runner.get_loop().time()
