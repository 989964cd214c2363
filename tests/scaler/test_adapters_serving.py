"""PyTorchJobs reflected instead of listed, and one process of two that acts."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from brain.types.job import JobId
from brain.types.world import ReplicaExit
from scaler.adapters.__main__ import _parser, serve
from scaler.adapters.backend import ForeignBackend
from scaler.adapters.kubeflow import PYTORCHJOB, PyTorchJobs
from scaler.adapters.record import JobRecord, RecordEntry
from scaler.adapters.sources import Reflected
from scaler.kubernetes.runtime import Manager, connect
from scaler.kubernetes.runtime.cluster import LEASE, NAMESPACE, POD, Cluster, Kind
from tests.kubernetes.apiserver import Server, serving
from tests.kubernetes.kubelet import FakeKubelet
from tests.kubernetes.operating import until
from tests.scaler.kubeflow import elastic
from tests.scaler.listing import ListedJobs
from tests.scaler.wished import NOW

CRDS = Kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "X", namespaced=False)


def definition() -> dict[str, Any]:
    """PyTorchJobs as far as the API server has to know them."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {"type": "object", "properties": {"spec": anything}},
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "pytorchjobs.kubeflow.org"},
        "spec": {
            "group": "kubeflow.org",
            "scope": "Namespaced",
            "names": {"plural": "pytorchjobs", "singular": "pytorchjob", "kind": "PyTorchJob"},
            "versions": [version],
        },
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("apiserver")) as made:
        kubelet = FakeKubelet(made)
        kubelet.add_nodes("n0", cpu="8", memory="8Gi")
        yield made
        kubelet.close()


@pytest.fixture(scope="module")
def cluster(server: Server) -> Iterator[Cluster]:
    made = Cluster(connect(kubeconfig=str(server.kubeconfig)))
    made.create(CRDS, definition())
    made.create(NAMESPACE, {"metadata": {"name": "team"}})
    until("the kind is served", lambda: ListedJobs(made, ["team"]).jobs(PYTORCHJOB) == [])
    yield made
    made.close()


def a_pod(uid: str) -> dict[str, Any]:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "digits"}
    container = {"name": "m", "image": "x", "resources": {"requests": {"cpu": "1500m"}}}
    return {
        "metadata": {
            "namespace": "team",
            "name": "digits-worker-0",
            "labels": {"training.kubeflow.org/job-name": "digits"},
            "ownerReferences": [owner | {"uid": uid, "controller": True}],
        },
        "spec": {"nodeName": "n0", "containers": [container]},
    }


def test_what_is_reflected_is_what_would_be_listed(cluster: Cluster):
    made = cluster.create(PYTORCHJOB, elastic())
    job = JobId(made["metadata"]["uid"])
    cluster.create(POD, a_pod(job))
    manager = Manager(cluster, namespaces=["team"])
    kinds = [PyTorchJobs()]
    watched = Reflected(manager, kinds, ["team"])
    reflected = ForeignBackend(cluster, kinds, watched, pool="local")
    listed = ForeignBackend(cluster, kinds, ListedJobs(cluster, ["team"]), pool="local")
    manager.start()
    try:
        assert manager.synced(60.0)
        until(
            "both see the same",
            lambda: reflected.observe(job, NOW) == listed.observe(job, NOW),
            lambda: (reflected.observe(job, NOW), listed.observe(job, NOW)),
        )
        assert reflected.jobs() == listed.jobs() == [job]
        assert len(reflected.observe(job, NOW).replicas) == 1
        assert reflected.nodes(NOW) == listed.nodes(NOW)
    finally:
        manager.stop()


def test_an_adapter_that_starts_in_an_outage_goes_on_after_it(
    cluster: Cluster, server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    url = ["--url", "http://127.0.0.1:9", "--token-file", "t", "--home", str(tmp_path)]
    given = _parser().parse_args([*url, "--namespace", "team", "--own-namespace", "elsewhere"])

    async def start() -> int:
        stop = asyncio.Event()
        again = Cluster(connect(kubeconfig=str(server.kubeconfig)))
        with server.outage():
            serving = asyncio.create_task(serve(given, again, "", stop))
            while "waits for it" not in caplog.text:
                await asyncio.sleep(0.05)
        while "serves pytorchjobs" not in caplog.text:
            assert not serving.done()
            await asyncio.sleep(0.05)
        stop.set()
        return await serving

    assert asyncio.run(asyncio.wait_for(start(), 60)) == 0


def test_one_leads_and_hands_the_lease_back(cluster: Cluster, server: Server, tmp_path: Path):
    # Nobody's: so the first start need not wait for its end.
    spec = {"holderIdentity": "", "leaseDurationSeconds": 1}
    metadata = {"namespace": "team", "name": "brain-adapters"}
    cluster.create(LEASE, {"metadata": metadata, "spec": spec})
    url = ["--url", "http://127.0.0.1:9", "--token-file", "t", "--home", str(tmp_path)]
    given = _parser().parse_args([*url, "--namespace", "team", "--own-namespace", "team"])

    def holder() -> str:
        found = cluster.get(LEASE, "team", "brain-adapters")["spec"]
        return str(found.get("holderIdentity") or "")

    async def until_it_leads() -> int:
        own, stop = Cluster(connect(kubeconfig=str(server.kubeconfig))), asyncio.Event()
        serving = asyncio.create_task(serve(given, own, "token", stop))
        await asyncio.to_thread(until, "it leads", holder)
        stop.set()
        return await serving

    assert (asyncio.run(until_it_leads()), holder()) == (0, "")


def test_a_record_does_not_grow_for_ever_and_no_id_comes_back():
    ended = [
        RecordEntry(id=n, pod=f"p{n}", uid=f"u{n}", generation=1, started_at=NOW) for n in range(9)
    ]
    record = JobRecord()
    for each in ended:
        record = record.put(each)
    open_ones = record.bounded(set(), count=3)
    closed = JobRecord(entries=tuple(_ended(each) for each in ended)).bounded({"u0"}, count=3)

    assert open_ones == record
    assert [each.id for each in closed.entries] == [0, 6, 7, 8]
    assert closed.next_id == 9
    assert JobRecord(forgotten=closed.next_id).next_id == 9


def _ended(entry: RecordEntry) -> RecordEntry:
    return replace(entry, exit=ReplicaExit.LEFT, ended_at=NOW)
