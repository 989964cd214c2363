"""A node that a job left as sick gets no further pod of it."""

from pathlib import Path

from brain import wire
from brain.types.world import ReplicaEnd, ReplicaExit
from scaler.kubernetes.pods import identity
from scaler.kubernetes.runtime.cluster import POD, Cluster, Object, connect
from tests.kubernetes.places import FromDocuments, backend, machines
from tests.kubernetes.real import Ground, ground
from tests.scaler.wished import JOB, NOW, eventually, wish


def test_the_next_pod_keeps_off_it(tmp_path: Path) -> None:
    with (
        ground(tmp_path) as server,
        machines(server, cpu="4", memory="8Gi") as here,
        backend(here, JOB, now=NOW) as pods,
    ):
        pods.start(wish(), 0, {}, NOW)
        first = eventually("it is on a node", lambda: bound(pods))
        leave(server, first, "an accelerator of the node failed")
        eventually("it has left", lambda: pods.observe(JOB, NOW).replicas[0].exit)

        pods.start(wish(), 1, {}, NOW)
        (next_one,) = (pod for pod in pods.pods_of(JOB) if identity.scaled_of(pod) == (JOB, 1))

    assert avoided(next_one) == [first["spec"]["nodeName"]]


def bound(pods: FromDocuments) -> Object | None:
    (pod,) = pods.pods_of(JOB)
    return pod if pod["spec"].get("nodeName") else None


def leave(server: Ground, pod: Object, why: str) -> None:
    """Its agent ends, and says that its node is to blame."""
    end = ReplicaEnd(exit=ReplicaExit.LEFT, exit_code=0, at=NOW, unfit=why)
    metadata = pod["metadata"]
    patch = {"metadata": {"annotations": {identity.ENDING: wire.encode(end).decode()}}}
    cluster = Cluster(connect(kubeconfig=str(server.kubeconfig)))
    cluster.merge(POD, metadata["namespace"], metadata["name"], patch)
    cluster.close()


def avoided(pod: Object) -> list[str]:
    affinity = pod["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (requirement,) = terms[0]["matchFields"]
    assert (requirement["key"], requirement["operator"]) == ("metadata.name", "NotIn")
    values: list[str] = requirement["values"]
    return values
