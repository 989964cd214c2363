"""What is kept of pods of others decides as the whole pods do."""

from typing import Any

from scaler.kubernetes.kinds.documents.templates import reserved
from scaler.kubernetes.pods import identity, ports
from scaler.kubernetes.pods.fitting import NodeCapacity
from scaler.kubernetes.pods.neighbours import averse
from scaler.kubernetes.pods.placement import needs, placed
from scaler.kubernetes.pods.trimming import trimmed
from scaler.kubernetes.runtime.store import Store
from tests.kubernetes.verdicts.drawing import drawn

Json = dict[str, Any]


def foreign(**spec: Any) -> Json:
    container = {
        "name": "main",
        "image": "registry.example/service:1",
        "env": [{"name": "A", "value": "secret"}],
        "resources": {"requests": {"cpu": "2"}},
        "ports": [{"containerPort": 80, "hostPort": 80}],
    }
    metadata = {
        "name": "service",
        "namespace": "team",
        "uid": "u",
        "resourceVersion": "7",
        "labels": {"app": "service"},
        "annotations": {"note": "long"},
        "managedFields": [{"manager": "kubectl"}],
    }
    whole = {"nodeName": "n0", "containers": [container], "volumes": [{"name": "v"}], **spec}
    return {"metadata": metadata, "spec": whole, "status": {"phase": "Running", "podIP": "1"}}


def test_of_a_foreign_pod_nothing_is_kept_but_what_decides_about_room() -> None:
    pod = foreign(affinity={"podAffinity": {}, "podAntiAffinity": {}})
    kept = trimmed(pod)

    assert kept["metadata"].keys() == {"name", "namespace", "uid", "resourceVersion", "labels"}
    assert kept["spec"].keys() == {"nodeName", "containers"}
    assert kept["spec"]["containers"][0].keys() == {"resources", "ports"}
    assert kept["status"] == {"phase": "Running"}
    assert (needs(kept["spec"]), reserved(kept)) == (needs(pod["spec"]), reserved(pod))
    assert ports.of(kept) == ports.of(pod)


def test_of_ours_and_of_dlrovers_everything_is_kept_but_who_wrote_it() -> None:
    pod = foreign()
    pod["metadata"]["labels"] |= {identity.NAME: "digits"}
    kept = trimmed(pod)

    assert kept["metadata"].keys() == pod["metadata"].keys() - {"managedFields"}
    assert (kept["spec"], kept["status"]) == (pod["spec"], pod["status"])


def test_random_clusters_give_the_same_room_to_whoever_comes() -> None:
    for number in range(100):
        cluster = drawn(1, number)
        found = []
        for keep in (lambda pod: pod, trimmed):
            nodes, pods = Store(), Store()
            pods.trim(keep)
            for each in cluster.nodes:
                nodes.put(each)
            for each in cluster.others:
                pods.put(each)
            capacity = NodeCapacity(nodes, pods).capacity(cluster.gang)
            found.append((placed(cluster.gang, capacity), sum(map(averse, pods))))
        assert found[0] == found[1], number
