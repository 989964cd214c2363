"""What a job costs the API server: writes from its birth until it runs, counted."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from scaler.kubernetes.pods import identity
from scaler.kubernetes.runtime.cluster.kind import EVENT, SECRET
from tests.kubernetes import jobs
from tests.kubernetes.operating import Place, Stage, accepted, living, operating, until


@pytest.fixture
def place(stage: Stage, tmp_path: Path) -> Iterator[Place]:
    with operating(stage.ground, tmp_path) as made, living(made):
        yield made


def writes(stage: Stage, place: Place, replicas: int) -> Counter[str]:
    """Writes of the operator, Events apart, until a job of our agent has all pods at work."""
    stage.ground.traffic.reset()
    made = accepted(place, replicas=replicas, minReplicas=1, maxReplicas=replicas)
    until("all run", lambda: len(place.run()) == replicas, place.pods)
    until("it is told", lambda: place.status(made).get("readyReplicas") == replicas)
    until("its budget is there", lambda: written(stage)["policy/poddisruptionbudgets"] > 0)
    return written(stage)


def written(stage: Stage) -> Counter[str]:
    """Writes of the operator since the last reset, Events apart."""
    counted: Counter[str] = Counter()
    for (method, what, _), count in stage.ground.traffic.counts.items():
        if method != "GET" and what not in ("events", "elastic.iml.github.io/elasticjobs"):
            counted[what] += count
    return counted


def test_a_job_of_one_pod_without_an_agent_costs_five_writes_until_it_runs(
    stage: Stage, place: Place
):
    stage.ground.traffic.reset()
    job = jobs.job("python", "t.py", resources={"cpu": "1"}, replicas=1)
    job["metadata"]["annotations"] = {identity.INJECT: "off"}
    made = place.apply(job)
    until("it runs", lambda: place.status(made).get("phase") == "Running", place.pods)

    counted = written(stage)

    statuses = counted.pop("elastic.iml.github.io/elasticjobs/status")
    assert counted == {"secrets": 1, "pods": 1}
    place.told("Started", "1 replicas are ready")
    found = place.cluster.list(EVENT, place.namespace).items
    assert [each["reason"] for each in found] == ["Started"]
    name = identity.secret_name(made["metadata"]["name"])
    assert not place.cluster.get(SECRET, place.namespace, name).get("data"), "no pod reads a token"
    # Two, unless a slow machine takes seconds from birth to the pod.
    assert statuses <= 3
    with place.api.stores.transaction(read_only=True) as tx:
        happened = [event.kind for event in tx.events.after(0, job=made["metadata"]["uid"])]
    assert [kind for kind in happened if kind.startswith("world.")] == ["world.stepping"]


def test_a_job_of_one_pod_costs_five_writes(stage: Stage, place: Place):
    counted = writes(stage, place, 1)

    once = {"secrets": 1, "pods": 2, "policy/poddisruptionbudgets": 1}
    assert counted - Counter({"elastic.iml.github.io/elasticjobs/status": 99}) == Counter(once)
    # A machine that is slow has more to tell: one status a second, and each change that lasts.
    assert counted["elastic.iml.github.io/elasticjobs/status"] <= 4


def test_each_further_pod_costs_two(stage: Stage, place: Place):
    counted = writes(stage, place, 8)

    assert counted["pods"] <= 2 * 8
    assert counted["secrets"] == 1
    assert counted["elastic.iml.github.io/elasticjobs/status"] <= 6
