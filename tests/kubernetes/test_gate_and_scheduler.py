"""The operator's gate beside the emulator's scheduler, written apart, on random clusters."""

from collections.abc import Sequence
from typing import Any

import pytest

from scaler.kubernetes.pods import gang
from scaler.kubernetes.pods.fitting import infeasible
from tests.kubernetes.apiserver.objects.patches import merged
from tests.kubernetes.predicates import occupied
from tests.kubernetes.scheduling import placed
from tests.kubernetes.verdicts.drawing import DrawnCluster, drawn
from tests.kubernetes.verdicts.golden import admission

Json = dict[str, Any]
#: Clusters of one test, and a seed that the record of a real scheduler does not have.
EACH, SEED = 50, 2


def admitted(cluster: DrawnCluster) -> list[Json]:
    """The pods that the gate lets begin, as they are then."""
    made = admission(cluster.nodes, cluster.others, [gated(pod) for pod in cluster.gang])
    return [merged(dict(pod), gang.opened(pod, made.near)) for pod in made.pods]


def gated(pod: Json) -> Json:
    return {**pod, "spec": {**pod["spec"], "schedulingGates": [{"name": gang.GATE}]}}


def scheduled(cluster: DrawnCluster, pods: Sequence[Json]) -> int:
    """The number of pods that the scheduler places."""
    keyed = [(("team", pod["metadata"]["name"]), pod) for pod in pods]
    return len(placed(keyed, occupied(cluster.nodes, cluster.others)).bound)


@pytest.mark.parametrize("part", range(20))
def test_in_none_of_a_thousand_clusters_a_part_of_a_gang_is_let_in(part: int):
    for number in range(part * EACH, (part + 1) * EACH):
        cluster = drawn(SEED, number)
        begins = admitted(cluster)

        assert scheduled(cluster, begins) == len(begins) in (0, len(cluster.gang)), number


@pytest.mark.parametrize("part", range(20))
def test_no_gang_waits_that_the_scheduler_would_place_whole(part: int):
    for number in range(part * EACH, (part + 1) * EACH):
        cluster = drawn(SEED, number)

        if scheduled(cluster, cluster.gang) == len(cluster.gang):
            assert len(admitted(cluster)) == len(cluster.gang), number


def test_what_never_fits_is_not_let_in_and_both_happen():
    verdicts = [
        (infeasible(cluster.gang, cluster.nodes), bool(admitted(cluster)))
        for cluster in (drawn(SEED, number) for number in range(200))
    ]

    assert not [never for never, begins in verdicts if never and begins]
    assert sum(begins for _, begins in verdicts) > 20
    assert sum(never is not None for never, _ in verdicts) > 20
