"""Jobs that DLRover's own master runs: Brain learns of them, and nothing of them is changed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brain.types.job import JobId
from brain.types.world import ReplicaExit
from scaler.kubernetes.operator.jobs import JOB
from scaler.kubernetes.pods import identity
from scaler.kubernetes.runtime.cluster import POD
from scaler.ports import ReplicaPhase
from tests.kubernetes.apiserver import serving
from tests.kubernetes.kubelet import FakeKubelet
from tests.kubernetes.operating import Place, job, operating, until
from tests.kubernetes.scheduling import Scheduler
from tests.scaler.wished import NOW, wish

Json = dict[str, Any]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with serving(tmp_path_factory.mktemp("apiserver")) as server:
        kubelet, scheduler = FakeKubelet(server), Scheduler(server)
        kubelet.add_nodes("n0", cpu="16", memory="64Gi")
        with operating(server, tmp_path_factory.mktemp("operator")) as made:
            yield made
        scheduler.close()
        kubelet.close()


def their_pod(made: Json, index: int) -> Json:
    """A worker as DLRover's master makes it."""
    metadata = made["metadata"]
    owner = {"apiVersion": JOB.api_version, "kind": "elasticjob", "controller": True}
    labels = {
        "app": "dlrover",
        identity.NAME: metadata["name"],
        identity.TYPE: "worker",
        identity.INDEX: str(index),
        identity.RANK: str(index),
    }
    return {
        "metadata": {
            "namespace": metadata["namespace"],
            "name": f"digits-edljob-worker-{index}",
            "labels": labels,
            "ownerReferences": [owner | {"name": metadata["name"], "uid": metadata["uid"]}],
        },
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }


@pytest.fixture(scope="module")
def advised(place: Place) -> Json:
    made = job(replicas=2, minReplicas=1, maxReplicas=4)
    made["spec"]["managedBy"] = "dlrover"
    made = place.apply(made)
    for index in range(2):
        place.cluster.create(POD, their_pod(made, index))
    return made


def test_brain_learns_of_it_and_of_its_world(place: Place, advised: Json):
    place.says(advised, "Accepted", "True", "AdviseOnly", "does not apply them")

    def formed() -> bool:
        place.look()
        world = place.job(advised).world
        return world is not None and len(world.members) == 2

    until("its world is told", formed)
    assert place.job(advised).job.mode == "shadow"


def test_its_pods_are_seen_and_never_touched(place: Place, advised: Json):
    backend, id = place.operator.backend, JobId(advised["metadata"]["uid"])
    until(
        "both run",
        lambda: [r.phase for r in backend.observe(id, NOW).replicas] == [ReplicaPhase.RUNNING] * 2,
    )

    backend.stop(id, 1, force=False, now=NOW)
    backend.start(wish(job=id), 2, {}, NOW)

    seen = backend.observe(id, NOW)
    assert [each.asked_at for each in seen.replicas] == [None, None]
    assert seen.lacking == "DLRover's own master runs this job, so Brain only advises"
    assert backend.has_token(id)


def test_one_that_its_master_took_away_is_lost(place: Place, advised: Json, tmp_path: Path):
    backend, id = place.operator.backend, JobId(advised["metadata"]["uid"])
    place.cluster.create(POD, their_pod(advised, 7))
    until("it is seen", lambda: 7 in [each.id for each in backend.observe(id, NOW).replicas])
    place.cluster.delete(POD, place.namespace, "digits-edljob-worker-7", grace_seconds=0)

    until("it is gone", lambda: backend.observe(id, NOW).replicas[-1].phase is ReplicaPhase.GONE)
    backend.close(id, 7, ReplicaExit.LOST, "gone", NOW)

    assert backend.observe(id, NOW).replicas[-1].exit is ReplicaExit.LOST
