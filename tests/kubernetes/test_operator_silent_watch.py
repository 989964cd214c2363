"""An operator whose watch is silent believes the API server, not its own stores."""

from random import Random
from typing import Any

import pytest

from brain.errors import Unavailable
from scaler.kubernetes.operator.backend import KubernetesBackend
from scaler.kubernetes.pods import identity
from scaler.kubernetes.pods.orders import Installation
from scaler.kubernetes.runtime.cluster import POD, SECRET, ClientLimits, Cluster, Unreachable
from scaler.kubernetes.runtime.store import Store
from scaler.ports import ReplicaPhase
from tests.kubernetes import jobs
from tests.kubernetes.shelf import Shelf, VirtualClock
from tests.scaler.wished import JOB, NOW


class Successor:
    """An operator's backend whose watch has told of nothing since its first list."""

    def __init__(self) -> None:
        self.shelf, self.pods = Shelf(), Store()
        self.pods.listed("1")
        made = jobs.job("brain-run", "t.py")
        made["metadata"] |= {"namespace": "team", "uid": JOB}
        owned = {"ownerReferences": [identity.owner("digits", JOB)]}
        secret = {"namespace": "team", "name": identity.secret_name("digits"), **owned}
        self.shelf.put({"metadata": secret}, SECRET)
        self.backend = KubernetesBackend(
            Cluster(
                self.shelf,
                ClientLimits(attempts=1),
                clock=VirtualClock(),
                random=Random(1),
                sleep=lambda seconds: None,
            ),
            pods=self.pods,
            nodes=Store(),
            find=lambda job: made,
            house=Installation,
            pool="pool",
        )

    def runs(self, id: int, uid: str = JOB) -> None:
        """Let the API server, but no watch, have a running pod."""
        labels = identity.labels("digits", uid, "worker", id, rank=id, relaunches=0)
        name = identity.pod_name("digits", "worker", id)
        metadata: dict[str, Any] = {"namespace": "team", "name": name, "labels": labels}
        running = {"phase": "Running", "startTime": "2026-11-21T11:00:00Z"}
        self.shelf.put({"metadata": metadata, "spec": {}, "status": running}, POD)

    def hears(self, *believed: int) -> None:
        """Let Brain tell which replicas it believes alive."""
        used = max(believed) + 1
        self.backend.told(JOB, believed=believed, used=used, named=None, epoch=1, now=NOW)

    def phases(self) -> dict[int, ReplicaPhase]:
        return {one.id: one.phase for one in self.backend.observe(JOB, NOW).replicas}


def test_a_replica_whose_pod_only_the_api_server_knows_is_not_lost() -> None:
    successor = Successor()
    successor.runs(0)
    successor.runs(2, uid="earlier")

    successor.hears(0, 1, 2)

    expected = {0: ReplicaPhase.RUNNING, 1: ReplicaPhase.GONE, 2: ReplicaPhase.GONE}
    assert successor.phases() == expected


def test_an_api_server_that_does_not_answer_proves_no_loss() -> None:
    successor = Successor()
    successor.backend.observe(JOB, NOW)
    successor.shelf.faults.append(Unreachable("away"))

    with pytest.raises(Unavailable):
        successor.hears(0)
    assert successor.phases() == {}
