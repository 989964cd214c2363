"""Nodes that are to go: cordoned, drained, announced; and pods that make way for others."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from brain.errors import Overloaded
from scaler.kubernetes.dependents.upkeep import BUDGET
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.operator.jobs import JOB
from scaler.kubernetes.plans.departures import kept as kept_by_budget
from scaler.kubernetes.pods.identity import RELAUNCHES
from scaler.kubernetes.runtime.cluster import NODE
from tests.kubernetes import jobs
from tests.kubernetes.operating import Place, Stage, accepted, living, operating, staged, until

Json = dict[str, Any]
WORKER = "digits-edljob-worker"
SPOT = "aws-node-termination-handler/spot-itn"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("apiserver")) as made:
        if not made.ground.collects:
            pytest.skip("nobody counts what disruption budgets allow here")
        yield made


@pytest.fixture
def place(stage: Stage, tmp_path: Path) -> Iterator[Place]:
    with operating(stage.ground, tmp_path) as made, living(made):
        yield made


@contextmanager
def changed(place: Place, name: str, spec: Json, back: Json) -> Iterator[None]:
    """A node is otherwise until the block ends."""
    place.cluster.merge(NODE, "", name, {"spec": spec})
    try:
        yield
    finally:
        place.cluster.merge(NODE, "", name, {"spec": back})


def cordoned(place: Place, name: str) -> Any:
    return changed(place, name, {"unschedulable": True}, {"unschedulable": None})


def announced(place: Place, name: str) -> Any:
    kept = place.cluster.get(NODE, "", name)["spec"].get("taints") or []
    taint = {"key": SPOT, "value": "x", "effect": "NoSchedule"}
    return changed(place, name, {"taints": [*kept, taint]}, {"taints": kept})


@contextmanager
def held(stage: Stage) -> Iterator[None]:
    """No pod starts until the block ends."""
    stage.kubelet.hold()
    try:
        yield
    finally:
        stage.kubelet.hold(False)


@contextmanager
def draining(stage: Stage, name: str) -> Iterator[Callable[[], int | None]]:
    """``kubectl drain`` at work on a node; gives its exit code, None while it waits."""
    who = ["kubectl", "--kubeconfig", str(stage.ground.kubeconfig)]
    order = ["drain", name, "--delete-emptydir-data", "--timeout=60s"]
    process = subprocess.Popen([*who, *order], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield process.poll
    finally:
        process.kill()
        process.communicate()
        subprocess.run([*who, "uncordon", name], check=True, capture_output=True)


def node_of(place: Place, index: str) -> str:
    return str(place.pods()[index]["spec"]["nodeName"])


def budget(place: Place) -> int | None:
    """Return the number of pods that the job's budget keeps; None: it has none."""
    found = place.cluster.list(BUDGET, place.namespace).items
    return next((int(each["spec"]["minAvailable"]) for each in found), None)


def kept(place: Place, index: str) -> bool:
    """Return whether a budget keeps a pod from whoever evicts it."""
    try:
        place.cluster.evict(place.namespace, f"{WORKER}-{index}")
    except Overloaded:
        return True
    return False


def one_runs(place: Place, **spec: Any) -> Json:
    made = accepted(place, replicas=1, minReplicas=1, maxReplicas=2)
    if spec:
        made = place.apply({**made, "metadata": {"name": "digits"}, "spec": made["spec"] | spec})
    until("it runs", lambda: place.run() == {"0"}, place.pods)
    return made


def test_a_drain_waits_for_the_replacement_and_ends(stage: Stage, place: Place):
    one_runs(place)
    until("a budget keeps it", lambda: budget(place) == 1)
    home = node_of(place, "0")
    with draining(stage, home) as code:
        with held(stage):
            until("another is made", lambda: "1" in place.pods(), place.pods)
            assert kept(place, "0")
            assert (code(), place.run()) == (None, {"0"})

        until("the drain ends", lambda: code() is not None, place.pods)
        assert code() == 0
        assert place.run() == {"1"}
        assert node_of(place, "1") != home


@pytest.mark.parametrize(
    ("free", "ready", "said"),
    [
        (set(), set(range(4)), 8),
        ({0}, set(range(8)), 7),
        ({0}, set(range(4)), 3),
        # One that is not ready is nobody's loss.
        ({0}, {1, 2, 3}, 3),
        ({0, 1}, {0}, 0),
    ],
)
def test_who_may_go_goes_although_others_are_missing(free: set[int], ready: set[int], said: int):
    made = read_elastic_job(jobs.job("brain-run", "t.py", replicas=8))

    assert kept_by_budget(made, 8, free, ready) == said


def test_a_cordon_that_is_taken_back_moves_nothing_more(stage: Stage, place: Place):
    one_runs(place)
    with held(stage):
        with cordoned(place, node_of(place, "0")):
            until("another is made", lambda: "1" in place.pods(), place.pods)
        # Whoever runs the other before the operator hears of it, asks for the move after all.
        until("it was heard", lambda: not place.operator.backend.leaving(*of_digits(place)))
    until("both run", lambda: place.run() == {"0", "1"}, place.pods)

    assert place.run() == {"0", "1"}


def of_digits(place: Place) -> Any:
    uid = place.cluster.get(JOB, place.namespace, "digits")["metadata"]["uid"]
    return uid, timedelta(0), datetime.now(UTC)


def test_a_job_that_wants_it_so_stays_on_a_cordoned_node(place: Place):
    one_runs(place, drainOnCordon=False)
    until("no budget keeps it", lambda: budget(place) == 0)
    with cordoned(place, node_of(place, "0")):
        until("the operator saw it", lambda: place.operator.backend.nodes(datetime.now(UTC)))
        assert set(place.pods()) == {"0"}
        # A real cluster's controller counts what the budget allows some time later.
        until("nothing keeps the pod", lambda: not kept(place, "0"))
        until("another runs", lambda: place.run() == {"1"}, place.pods)


def test_a_node_is_left_although_no_other_has_room_once_patience_is_over(
    stage: Stage, place: Place
):
    one_runs(place, gangPatience=2)
    home = node_of(place, "0")
    other = {"n0": "n1", "n1": "n0"}[home]
    with cordoned(place, other), draining(stage, home) as code:
        until("the drain ends", lambda: code() is not None, place.pods)
        assert code() == 0
        assert not place.run()
    until("it runs again", lambda: len(place.run()) == 1, place.pods)


def test_a_pod_of_a_node_that_is_announced_to_go_leaves_once_another_runs(
    stage: Stage, place: Place
):
    one_runs(place)
    home = node_of(place, "0")
    with announced(place, home):
        with held(stage):
            until("another is made", lambda: "1" in place.pods(), place.pods)
            # Nothing is gained by keeping it on a node that goes whatever a budget says.
            until("no budget keeps it", lambda: budget(place) == 0)
            assert place.run() == {"0"}
        until("the other runs alone", lambda: place.run() == {"1"}, place.pods)
        assert node_of(place, "1") != home


def test_a_pod_that_others_were_told_of_stays_on_an_announced_node(place: Place):
    made = place.apply(jobs.job("torchrun", "t.py", resources={"cpu": "1"}, replicas=1))
    place.says(made, "Running", "True", "WorldFormed")
    with announced(place, node_of(place, "0")):
        until("another runs, too", lambda: place.run() == {"0", "1"}, place.pods)
        place.says(made, "Degraded", "False", "Full")

    assert (place.run(), budget(place)) == ({"0", "1"}, None)


def test_a_pod_that_the_scheduler_preempts_is_replaced_and_counts_as_no_failure(
    stage: Stage, place: Place
):
    made = accepted(place, replicas=2, minReplicas=1, maxReplicas=2, restartCount=0)
    until("two run", lambda: place.run() == {"0", "1"}, place.pods)
    stage.kubelet.preempt(f"{WORKER}-1", namespace=place.namespace)
    until("another runs", lambda: place.run() == {"0", "2"}, place.pods)

    assert place.pods()["2"]["metadata"]["labels"][RELAUNCHES] == "0"
    assert place.status(made).get("restarts", 0) == 0
