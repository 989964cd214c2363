"""What the operator keeps in memory: sums over pods, pods on their way, jobs that ended."""

import threading
from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from brain.errors import NotFound, Unavailable
from brain.types.job import JobId, JobState
from brain.types.resources import Resources
from scaler.kubernetes.brain import OperatorsBrain
from scaler.kubernetes.operator.backend import KubernetesBackend
from scaler.kubernetes.pods.asking import reserves
from scaler.kubernetes.pods.fitting import NodeCapacity
from scaler.kubernetes.pods.orders import Installation
from scaler.kubernetes.replicas.actions import Acts
from scaler.kubernetes.runtime.cluster import POD, Key, Kind
from scaler.kubernetes.runtime.store import Store
from tests.kubernetes import jobs
from tests.kubernetes.eventually import eventually
from tests.scaler.wished import NOW, wish


def a_pod(name: str, cpu: int, phase: str, version: int) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": f"{cpu}m", "memory": "1Gi"}}}
    return {
        "metadata": {
            "namespace": "team",
            "name": name,
            "uid": name,
            "resourceVersion": str(version),
        },
        "spec": {"containers": [container]},
        "status": {"phase": phase},
    }


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcd"),
            st.sampled_from(["put", "learn", "drop"]),
            st.integers(1, 4000),
            st.sampled_from(["Pending", "Running", "Failed"]),
        )
    )
)
def test_what_is_reserved_is_always_the_sum_of_all_pods(told: list[tuple[str, str, int, str]]):
    store = Store()
    total = store.sum("reserves", reserves, Resources())
    for version, (name, verb, cpu, phase) in enumerate(told, start=1):
        made = a_pod(name, cpu, phase, version)
        match verb:
            case "put":
                store.put(made)
            case "learn":
                store.learn(made)
            case _:
                store.drop(Key("team", name))

        assert total() == sum((reserves(each) for each in store), Resources())


def test_a_sum_begins_with_what_is_there():
    store = Store()
    store.put(a_pod("a", 500, "Running", 1))

    assert store.sum("reserves", reserves, Resources())().cpu_millis == 500


def test_an_act_that_waits_is_not_wanted_twice():
    acts, go, done = Acts(1), threading.Event(), []
    acts.do("first", lambda: cast(Any, go.wait(60)))
    for _ in range(3):
        acts.do("second", lambda: done.append(1))

    go.set()
    acts.end()

    assert done == [1]


def test_an_act_that_failed_says_so_and_may_be_tried_again():
    acts, heard = Acts(1), []

    def refused() -> None:
        raise Unavailable("no answer")

    acts.do("delete", refused, lambda why: heard.append(str(why)))
    eventually(lambda: heard == ["no answer"])
    eventually(lambda: acts.do("delete", refused, heard.append) or heard[1:])
    acts.end()


class Listing(OperatorsBrain):
    """A Brain that lists what it is told to, and knows how everything ended."""

    def __init__(self, *listed: str) -> None:
        self.heard: list[JobId] = []
        super().__init__(cast(Any, None), "pool", told=self.heard.append)
        self.listed, self.asked = listed, list[str]()

    def _all(self) -> dict[JobId, Any]:
        return {JobId(job): a_view(job, JobState.RUNNING) for job in self.listed}

    def detail(self, job: JobId) -> Any:
        self.asked.append(job)
        return SimpleNamespace(job=a_view(job, JobState.SUCCEEDED))


def a_view(job: str, state: JobState) -> Any:
    names = ["reason", "version", "replicas", "replicas_wished", "epoch", "generation", "failures"]
    return SimpleNamespace(id=JobId(job), state=state, plan=None, **dict.fromkeys(names))


def test_a_job_that_is_listed_no_more_is_asked_about_once():
    brain = Listing("a", "b")
    brain.look()
    brain.heard.clear()
    brain.listed = ("a",)

    brain.look()
    brain.look()

    assert (brain.asked, brain.heard) == (["b"], ["b"])
    assert cast(Any, brain.view(JobId("b"))).state is JobState.SUCCEEDED
    assert list(brain.views()) == ["a"]


class Overtaken(Listing):
    """A job comes while the list is on its way, made before that."""

    def _all(self) -> dict[JobId, Any]:
        found = super()._all()
        self._learn(a_view("new", JobState.QUEUED))
        return found

    def detail(self, job: JobId) -> Any:
        return SimpleNamespace(job=a_view(job, JobState.QUEUED))


def test_a_job_that_came_while_the_list_was_made_has_not_ended():
    brain = Overtaken("a")
    brain.look()
    queued = brain.view(JobId("new"))
    brain.listed = ("a", "new")
    Listing.look(brain)

    assert cast(Any, queued).state is JobState.QUEUED
    assert cast(Any, brain.view(JobId("new"))).state is JobState.RUNNING


class Mirrored(Listing):
    """A job comes after the list was made, while one that is not in it is asked about."""

    def detail(self, job: JobId) -> Any:
        self._learn(a_view("new", JobState.QUEUED))
        return super().detail(job)


def test_a_job_that_came_after_the_list_was_made_stays_known():
    brain = Mirrored("a", "b")
    brain.look()
    brain.listed = ("a",)
    brain.look()

    assert list(brain.views()) == ["a", "new"]


def test_a_job_that_ended_before_this_operator_began_is_recalled():
    brain = Listing()
    brain.look()

    first = brain.recalled(JobId("old"))
    again = brain.recalled(JobId("old"))

    assert first is again is not None
    assert brain.asked == ["old"]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["n0", "n1", ""]))))
def test_room_is_what_all_pods_of_a_node_leave(told: list[tuple[str, str]]):
    nodes, pods = Store(), Store()
    nodes.put({"metadata": {"name": "n0"}, "status": {"allocatable": {"cpu": "64", "pods": "9"}}})
    room = NodeCapacity(nodes, pods)
    for version, (name, where) in enumerate(told, start=1):
        made = a_pod(name, 500, "Running", version)
        pods.put({**made, "spec": {**made["spec"], "nodeName": where}})

    there = sum(each["spec"]["nodeName"] == "n0" for each in pods)
    free = room.capacity([]).free["n0"]
    assert (free["cpu"], free["pods"]) == (64 - Decimal("0.5") * there, 9 - there)


class Slow:
    """A cluster that creates once it is let go."""

    def __init__(self) -> None:
        self.go, self.made = threading.Event(), list[str]()

    def get(self, *_: object) -> None:
        raise NotFound("no Secret")

    def create(self, kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
        self.go.wait(60)
        if kind == POD:
            self.made.append(f"{obj['metadata']['namespace']}/{obj['metadata']['name']}")
        return obj

    def merge(self, *_: object) -> None:
        raise NotFound("no Secret")


def test_a_pod_of_which_no_watch_has_told_for_a_minute_is_there():
    cluster, made = Slow(), jobs.job("brain-run", "t.py", replicas=1)
    made["metadata"] |= {"uid": "job", "namespace": "team"}
    backend = KubernetesBackend(
        cast(Any, cluster),
        pods=Store(),
        nodes=Store(),
        find=lambda job: made,
        house=Installation,
        pool="pool",
    )
    backend.start(wish(1, job=JobId("job")), 0, {}, NOW)
    cluster.go.set()
    backend.close_down()

    for seconds in (0, 60, 120):
        (seen,) = backend.observe(JobId("job"), NOW + timedelta(seconds=seconds)).replicas
        assert seen.alive, seen


def test_jobs_of_one_name_in_two_namespaces_have_their_pods_at_once():
    cluster, objects = Slow(), dict[JobId, dict[str, Any]]()
    backend = KubernetesBackend(
        cast(Any, cluster),
        pods=Store(),
        nodes=Store(),
        find=objects.get,
        house=Installation,
        pool="pool",
    )
    for where in ("one", "two"):
        made = jobs.job("brain-run", "t.py", replicas=1)
        made["metadata"] |= {"uid": where, "namespace": where}
        objects[JobId(where)] = made
        backend.start(wish(1, job=JobId(where)), 0, {}, NOW)
    cluster.go.set()
    backend.close_down()

    assert sorted(cluster.made) == ["one/digits-edljob-worker-0", "two/digits-edljob-worker-0"]
