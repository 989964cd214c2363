"""``brain-collect --kubernetes``: what is there is delivered, what is not is said, and why."""

import asyncio
import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from brain import calls, wire
from brain.client import AsyncBrainClient
from brain.errors import NotSignedIn
from brain.types.resources import PoolName
from brain.types.telemetry import HostSample
from collectors import cli
from collectors.paths import Home, make_private
from collectors.pods.check import examine
from collectors.pods.loop import ClusterCollector, PodCollectorOptions, brain_of
from collectors.pods.sources import TelemetrySources
from tests.collectors.clustered import (
    JOB,
    START,
    Listing,
    metered,
    node,
    pod,
    series,
    stamp,
    vector,
    waited,
)
from tests.collectors.serviced import Service

METRICS = "/apis/metrics.k8s.io/v1beta1"
JOBS = "/apis/elastic.iml.github.io/v1alpha1/elasticjobs"


def cluster(**changed: Any) -> dict[str, Any]:
    """One job of one pod on one node, and a metrics-server."""
    meta = {"name": "digits", "namespace": "team", "uid": JOB, "creationTimestamp": stamp(0)}
    paths: dict[str, Any] = {
        "/api/v1/pods": [pod()],
        "/api/v1/nodes": [node()],
        JOBS: [{"metadata": meta}],
        f"{METRICS}/nodes": [metered("n0", seconds=20, cpu="3", memory="8Gi")],
        f"{METRICS}/pods": [
            metered(
                "digits-edljob-worker-0", seconds=20, cpu="900m", memory="2Gi", namespace="team"
            )
        ],
    }
    return paths | changed


class Brain(httpx2.AsyncBaseTransport):
    """Knows one job; keeps what it is told, and does not answer it if ``silent``."""

    def __init__(self, *, silent: bool = False) -> None:
        self.silent = silent
        self.told: list[tuple[str, str, Any]] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if request.method != "GET" and self.silent:
            self.told.append((request.method, path, None))
            raise httpx2.ReadTimeout("", request=request)
        if request.method != "GET":
            self.told.append((request.method, path, json.loads(request.content)))
            return httpx2.Response(204)
        if path.endswith(JOB):
            return httpx2.Response(200, json={})
        problem = {"type": "UnknownJob", "title": "", "status": 404, "detail": "none"}
        return httpx2.Response(404, json=problem)


async def look(
    listing: Listing,
    home: Path,
    *,
    url: str = "http://127.0.0.1:9",
    pool: str | None = None,
    prometheus: Listing | None = None,
    brain: Brain | None = None,
) -> tuple[dict[str, Any], Brain]:
    """One turn, and what is said and told after it."""
    brain = brain or Brain()
    place = Home(home)
    make_private(place.collector)
    options = PodCollectorOptions(
        home=place, url=url, token=lambda: "brn_x", pool=PoolName(pool) if pool else None
    )
    async with AsyncBrainClient("http://brain", transport=brain) as client:
        metrics = prometheus.client() if prometheus else None
        sources = TelemetrySources(listing.door(), prometheus=metrics)
        collector = ClusterCollector(options, sources, client, clock=lambda: START)
        stop = asyncio.Event()
        stop.set()
        await collector.turn()
        await collector.run(stop)
    status: dict[str, Any] = json.loads(place.status.read_text())
    return status, brain


def test_what_pods_use_reaches_the_service(tmp_path: Path):
    service = Service()
    try:
        status, _ = asyncio.run(look(Listing(cluster()), tmp_path, url=service.url))
    finally:
        service.close()

    sample = service.of(HostSample)[0]
    assert (sample.job, sample.node, sample.job_cpu_millis, sample.cpu_millis) == (
        JOB,
        "n0",
        900,
        3000,
    )
    assert (status["delivered"], status["degraded"]) == (1, [])
    assert status["pods"] == {JOB: {"Running": 1}}


def test_without_metrics_nothing_is_made_up_and_the_remedy_is_said(tmp_path: Path):
    listing = Listing(cluster(**{f"{METRICS}/nodes": 404}))

    status, _ = asyncio.run(look(listing, tmp_path))

    assert status["spooled"] == 0
    assert [each["source"] for each in status["degraded"]] == ["usage"]
    assert "install metrics-server" in status["degraded"][0]["remedy"]


def test_a_list_of_nothing_that_is_null_ends_no_collector(tmp_path: Path):
    paths = {f"{METRICS}/pods": {"items": None}}

    status, _ = asyncio.run(look(Listing(cluster(**paths)), tmp_path))

    assert (status["spooled"], status["degraded"]) == (0, [])


def test_kubelets_stand_in_for_metrics_server(tmp_path: Path):
    paths = {f"{METRICS}/nodes": 404, "/api/v1/nodes/n0/proxy/stats/summary": summary("n0")}

    status, _ = asyncio.run(look(Listing(cluster(**paths)), tmp_path))

    assert (status["spooled"], status["degraded"]) == (1, [])


def summary(name: str) -> dict[str, Any]:
    """The answer of the kubelet of a node that runs the job's pod."""
    whole = {
        "cpu": {"time": stamp(20), "usageNanoCores": 5e8},
        "memory": {"workingSetBytes": 1 << 30},
    }
    ref = {"name": "digits-edljob-worker-0", "namespace": "team", "uid": "pod-0"}
    return {"node": {"nodeName": name} | whole, "pods": [{"podRef": ref} | whole]}


class SilentKubelets(Listing):
    """A cluster of so many nodes, of which only the last one has a kubelet that answers."""

    def __init__(self, nodes: int) -> None:
        names = [f"n{index:03}" for index in range(nodes)]
        self.well = f"/api/v1/nodes/{names[-1]}/proxy/stats/summary"
        paths = {"/api/v1/nodes": list(map(node, names)), f"{METRICS}/nodes": 404}
        super().__init__(cluster(**paths, **{self.well: summary(names[-1])}))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if path.endswith("/proxy/stats/summary") and path != self.well:
            await asyncio.Event().wait()
        return await super().handle_async_request(request)


def test_a_round_over_many_silent_kubelets_is_short_and_keeps_what_the_others_said():
    sources = TelemetrySources(SilentKubelets(60).door())

    read, seconds = waited(sources.look())

    assert read.usage is not None
    assert list(read.usage.nodes) == ["n059"]
    assert [each.why.partition(":")[0] for each in read.troubles] == [
        "59 of 60 kubelets were not read"
    ]
    assert seconds <= 60


def test_kubelets_beyond_the_time_of_a_round_are_read_first_in_the_next_round():
    async def rounds() -> list[bool]:
        sources = TelemetrySources(SilentKubelets(150).door())
        return [(await sources.look()).usage is not None for _ in range(3)]

    found, seconds = waited(rounds())

    assert (found, seconds <= 180) == ([False, True, True], True)


def test_without_the_right_to_read_kubelets_few_are_asked():
    paths = {f"/api/v1/nodes/n{index}/proxy/stats/summary": 403 for index in range(100)}
    nodes = [node(f"n{index}") for index in range(100)]
    listing = Listing(cluster(**paths, **{"/api/v1/nodes": nodes, f"{METRICS}/nodes": 404}))

    read, _ = waited(TelemetrySources(listing.door()).look())

    assert [each.source for each in read.troubles] == ["usage"]
    assert sum("proxy" in path for path in listing.asked) <= 16


def test_a_token_that_brain_refuses_is_read_again_from_its_file(tmp_path: Path):
    file, heard = tmp_path / "scaler", list[str]()
    file.write_text("brn_old")

    def answer(request: httpx2.Request) -> httpx2.Response:
        heard.append(request.headers["authorization"])
        return httpx2.Response(401 if "old" in heard[-1] else 204)

    async def report() -> None:
        given = Namespace(url="http://brain", token_file=str(file))
        async with brain_of(given, httpx2.MockTransport(answer)) as brain:
            file.write_text("brn_new")
            await brain.send(calls.conditions(JOB, ()))

    asyncio.run(report())
    assert heard == ["Bearer brn_old", "Bearer brn_new"]


def test_a_token_file_that_is_no_text_is_refused_in_a_sentence(tmp_path: Path):
    (tmp_path / "scaler").write_bytes(b"\xff")

    with pytest.raises(NotSignedIn, match="a character that no token has"):
        brain_of(Namespace(url="http://brain", token_file=str(tmp_path / "scaler")))


def test_a_brain_that_does_not_answer_is_told_one_thing_per_round(tmp_path: Path):
    nodes = [node(f"n{index}") for index in range(40)]

    status, brain = asyncio.run(
        look(
            Listing(cluster(**{"/api/v1/nodes": nodes})),
            tmp_path,
            pool="gpu",
            brain=Brain(silent=True),
        )
    )

    assert len(brain.told) == 1
    assert "did not answer" in status["refused"]["replicas"]


def test_a_refused_list_of_pods_names_the_right(tmp_path: Path):
    status, _ = asyncio.run(look(Listing(cluster(**{"/api/v1/pods": 403})), tmp_path))

    trouble = status["degraded"][0]
    assert (trouble["source"], "`list` on pods" in trouble["remedy"]) == ("pods", True)


def test_gpus_without_a_prometheus_are_said(tmp_path: Path):
    paths = {"/api/v1/pods": [pod(requests={"nvidia.com/gpu": "1"})]}

    status, _ = asyncio.run(look(Listing(cluster(**paths)), tmp_path))

    assert "--prometheus" in status["degraded"][0]["remedy"]


def test_devices_come_through_prometheus_by_the_address_of_their_exporter(tmp_path: Path):
    exporter = pod("dcgm-exporter-x", "pod-9", status={"podIP": "10.0.0.7"})
    mine = pod(requests={"nvidia.com/gpu": "1"})
    named = {"exported_pod": "digits-edljob-worker-0", "exported_namespace": "team"}
    place = {"gpu": "0", "UUID": "GPU-0", "instance": "10.0.0.7:9400", "Hostname": "dcgm-x"}
    values = (("DCGM_FI_DEV_GPU_UTIL", "40"), ("DCGM_FI_DEV_FB_USED", "2000"))
    found = vector(*(series(metric, value, **place, **named) for metric, value in values))
    service = Service()
    try:
        status, _ = asyncio.run(
            look(
                Listing(cluster(**{"/api/v1/pods": [mine, exporter]})),
                tmp_path,
                url=service.url,
                prometheus=Listing({"/api/v1/query": found}),
            )
        )
    finally:
        service.close()

    assert [gpu.utilization for gpu in service.of(HostSample)[0].gpus] == [0.4]
    assert status["degraded"] == []


def test_a_prometheus_without_dcgm_is_said(tmp_path: Path):
    paths = {"/api/v1/nodes": [node(gpus=1)]}
    nothing = Listing({"/api/v1/query": vector()})

    status, _ = asyncio.run(look(Listing(cluster(**paths)), tmp_path, prometheus=nothing))

    assert "no DCGM series" in status["degraded"][0]["why"]


def test_nodes_and_foreign_replicas_are_told(tmp_path: Path):
    _, brain = asyncio.run(look(Listing(cluster()), tmp_path, pool="gpu"))

    assert [path for _, path, _ in brain.told] == [
        f"/api/v1/jobs/{JOB}/replicas",
        "/api/v1/nodes/n0",
    ]


def test_replicas_of_an_advised_job_are_its_operators_to_tell(tmp_path: Path):
    meta = {"name": "digits", "namespace": "team", "uid": JOB, "creationTimestamp": stamp(0)}
    advised = {"metadata": meta, "spec": {"managedBy": "dlrover"}}

    _, brain = asyncio.run(look(Listing(cluster(**{JOBS: [advised]})), tmp_path))

    assert brain.told == []


def test_jobs_that_brain_does_not_know_are_counted(tmp_path: Path):
    meta = {"name": "digits", "namespace": "team", "uid": "other", "creationTimestamp": stamp(0)}

    status, _ = asyncio.run(look(Listing(cluster(**{JOBS: [{"metadata": meta}]})), tmp_path))

    assert (status["jobs_unknown_to_brain"], status["spooled"]) == (1, 0)


def test_the_spool_keeps_what_a_brain_that_is_away_does_not_take(tmp_path: Path):
    status, _ = asyncio.run(look(Listing(cluster()), tmp_path))

    line = next((tmp_path / "collector").rglob("*.ndjson")).read_bytes()
    assert status["spooled"] == 1
    assert isinstance(wire.decode_sample(line), HostSample)


def test_lists_are_read_page_by_page(tmp_path: Path):
    class Paged(Listing):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            if request.url.path != "/api/v1/pods":
                return await super().handle_async_request(request)
            second = request.url.params.get("continue") == "next"
            names = ("digits-edljob-worker-1", "pod-1") if second else ("digits-edljob-worker-0",)
            meta = {} if second else {"continue": "next"}
            return httpx2.Response(200, json={"metadata": meta, "items": [pod(*names)]})

    status, _ = asyncio.run(look(Paged(cluster()), tmp_path))

    assert status["pods"] == {JOB: {"Running": 2}}


# What the doctor says.

INSTALLED = {METRICS: {"resources": [{"name": "pods"}]}}


def found(listing: Listing, prometheus: Listing | None = None) -> dict[str, tuple[str, str]]:
    client = prometheus.client() if prometheus else None
    return {
        each.what: (each.level, each.remedy)
        for each in asyncio.run(examine(listing.door(), (), client))
    }


def test_the_check_names_a_missing_right_and_its_remedy():
    level, remedy = found(Listing(INSTALLED, denied=["pods"]))[
        "the collector lacks the permission to list pods"
    ]

    assert (level, "grant `list` on pods" in remedy) == ("bad", True)


def test_the_check_names_missing_metrics():
    level, remedy = found(Listing({}))["the cluster does not serve metrics.k8s.io"]

    assert (level, "install metrics-server" in remedy) == ("note", True)


def test_the_check_names_an_exporter_without_pods():
    series_ = series("DCGM_FI_DEV_GPU_UTIL", "1", UUID="GPU-0", Hostname="n0")
    prometheus = Listing({"/api/v1/query": vector(series_)})

    said = found(Listing(INSTALLED), prometheus)

    assert "pod-resources" in said["none of 1 DCGM series names a pod"][1]


def test_a_collector_without_a_url_says_so(caplog: pytest.LogCaptureFixture):
    assert cli.main(["--kubernetes"]) == 1
    assert "--url" in caplog.text
