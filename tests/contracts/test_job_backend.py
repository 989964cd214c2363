"""What every ``JobBackend`` keeps, whatever runs the replicas."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest

from brain.types.job import JobId
from brain.types.resources import Resources
from brain.types.world import ReplicaExit
from scaler.adapters.backend import ForeignBackend
from scaler.adapters.jobset import JOBSET, JobSets
from scaler.kubernetes.runtime.cluster import Cluster, connect
from scaler.local import LocalBackend, LocalMachine
from scaler.ports import JobBackend, ReplicaPhase, ReplicaSeen
from tests.kubernetes.apiserver import Server
from tests.kubernetes.apiserver.hands import key_of
from tests.kubernetes.neighbours.jobset import JOBSETS, PlayedJobSets, jobset
from tests.kubernetes.places import FromDocuments, Machines, machines
from tests.kubernetes.places import backend as in_a_cluster
from tests.kubernetes.real import ground
from tests.scaler.kubeflow import Kubeflow, elastic
from tests.scaler.listing import ListedJobs
from tests.scaler.memory_backend import MemoryBackend
from tests.scaler.wished import AGENT, JOB, NOW, end_all, eventually, wish

CAPACITY = Resources(cpu_millis=4000, memory_bytes=2**33)
OTHER = JobId("01998f00-0000-7000-8000-000000000002")
NUMBERS = count()


class Place(Protocol):
    """A backend, and a hand in the place where its replicas run."""

    @property
    def backend(self) -> JobBackend: ...

    def report_in(self, replica: int) -> None:
        """Let the agent come up."""
        ...

    def kill(self, replica: int) -> None:
        """Let the agent vanish without a word."""
        ...


@dataclass
class InMemory:
    backend: MemoryBackend

    def report_in(self, replica: int) -> None:
        self.backend.run(JOB, replica)

    def kill(self, replica: int) -> None:
        self.backend.lose(JOB, replica)


@dataclass
class OnThisMachine:
    backend: LocalBackend

    def report_in(self, replica: int) -> None:
        until(self, replica, lambda seen: seen.phase is ReplicaPhase.RUNNING)

    def kill(self, replica: int) -> None:
        self.backend.stop(JOB, replica, force=True, now=NOW)
        until(self, replica, lambda seen: seen.phase is ReplicaPhase.GONE)


@dataclass
class InACluster:
    backend: FromDocuments

    def report_in(self, replica: int) -> None:
        until(self, replica, lambda seen: seen.phase is ReplicaPhase.RUNNING)

    def kill(self, replica: int) -> None:
        self.backend.stop(JOB, replica, force=True, now=NOW)
        until(self, replica, lambda seen: seen.phase is ReplicaPhase.GONE)


@dataclass
class OnKubeflow:
    """Pods made by another operator; every look is that of a scaler that just began."""

    kubeflow: Kubeflow

    @property
    def backend(self) -> ForeignBackend:
        return self.kubeflow.backend()

    def report_in(self, replica: int) -> None:
        self.kubeflow.phase(self.kubeflow.pods[replica], "Running")
        until(self, replica, lambda seen: seen.phase is ReplicaPhase.RUNNING)

    def kill(self, replica: int) -> None:
        self.kubeflow.lose(self.kubeflow.pods[replica])


@dataclass
class OnJobSet:
    """Pods of a JobSet's Job on the emulator, under controllers that are played."""

    played: PlayedJobSets
    cluster: Cluster
    namespace: str

    @property
    def backend(self) -> ForeignBackend:
        self.played.settle()
        sources = ListedJobs(self.cluster, [self.namespace])
        return ForeignBackend(self.cluster, [JobSets()], sources, pool="local")

    def report_in(self, replica: int) -> None:
        until(self, replica, lambda seen: seen.phase is ReplicaPhase.RUNNING)

    def kill(self, replica: int) -> None:
        self.played.paused = True
        self.played.lose_pods(self.namespace)
        until(self, replica, lambda seen: seen.phase is ReplicaPhase.GONE)


def look(place: Place, replica: int) -> ReplicaSeen:
    return {r.id: r for r in place.backend.observe(JOB, NOW).replicas}[replica]


def until(place: Place, replica: int, wanted: Callable[[ReplicaSeen], bool]) -> ReplicaSeen:
    def found() -> ReplicaSeen | None:
        return seen if wanted(seen := look(place, replica)) else None

    return eventually(f"replica {replica}, {look(place, replica)}, as wanted", found)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    directory = tmp_path_factory.mktemp("apiserver")
    with ground(directory) as server, machines(server, cpu="4", memory="8Gi") as running:
        yield running


@contextmanager
def a_jobset(machines: Machines) -> Iterator[OnJobSet]:
    """A suspended JobSet whose uid is the contract's job."""
    server = machines.server
    if not isinstance(server, Server):
        pytest.skip("JobSet's controllers are played on the emulator alone")
    namespace = f"jobset-{next(NUMBERS)}"
    cluster = Cluster(connect(kubeconfig=str(server.kubeconfig)))
    server.hands.create(("", "namespaces"), {"metadata": {"name": namespace}})
    played = PlayedJobSets(server)
    made = jobset(suspended=True)
    made["metadata"]["namespace"] = namespace
    made = cluster.create(JOBSET, made)
    made["metadata"]["uid"] = JOB
    server.call(lambda: server.api.store.put(JOBSETS, key_of(made), made))
    try:
        yield OnJobSet(played, cluster, namespace)
    finally:
        cluster.delete(JOBSET, namespace, "digits")
        played.lose_pods(namespace)
        cluster.close()


@pytest.fixture(params=["memory", "local", "kubernetes", "pytorchjob", "jobset"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "memory":
        yield InMemory(MemoryBackend(capacity=CAPACITY))
        return
    if request.param == "pytorchjob":
        yield OnKubeflow(Kubeflow(elastic(suspended=True)))
        return
    if request.param == "jobset":
        with a_jobset(request.getfixturevalue("cluster")) as jobset:
            yield jobset
        return
    if request.param == "kubernetes":
        with in_a_cluster(request.getfixturevalue("cluster"), JOB, OTHER, now=NOW) as pods:
            yield InACluster(pods)
        return
    backend = LocalBackend(
        tmp_path,
        measure=lambda: LocalMachine(capacity=CAPACITY),
        name="here",
        agent=AGENT,
        base=os.environ,
    )
    yield OnThisMachine(backend)
    end_all(backend)


def start(place: Place, replica: int, **wished: object) -> None:
    place.backend.start(wish(**wished), replica, {}, NOW)  # type: ignore[arg-type]


def test_describes_the_place(place: Place):
    assert [node.capacity for node in place.backend.nodes(NOW)] == [CAPACITY]


def test_a_job_that_was_never_here_has_nothing(place: Place):
    seen = place.backend.observe(JOB, NOW)

    assert (seen.replicas, seen.next_id, seen.named, seen.free) == ((), 0, frozenset(), CAPACITY)
    assert place.backend.jobs() == []


def test_a_started_replica_is_seen_at_once(place: Place):
    start(place, 0, generation=3)

    seen = look(place, 0)
    assert seen.alive
    assert (seen.generation, seen.started_at, seen.ended_at) == (3, NOW, None)
    assert list(place.backend.jobs()) == [JOB]


def test_ids_only_count_up(place: Place):
    start(place, 0)
    start(place, 4)

    assert place.backend.observe(JOB, NOW).next_id == 5


def test_an_agent_that_came_up_runs(place: Place):
    start(place, 0)
    place.report_in(0)

    assert look(place, 0).phase is ReplicaPhase.RUNNING


def test_starting_twice_is_starting_once(place: Place):
    start(place, 0, generation=1)
    place.report_in(0)
    start(place, 0, generation=2)

    seen = look(place, 0)
    assert (seen.phase, seen.generation) == (ReplicaPhase.RUNNING, 1)


def test_a_replica_reserves_while_it_is_alive(place: Place):
    start(place, 0, resources={"cpuMillis": 1500})

    assert place.backend.observe(OTHER, NOW).free.cpu_millis == 2500


def test_an_adjustable_replica_takes_other_amounts_while_it_runs(place: Place):
    start(place, 0, resources={"cpuMillis": 1500})
    place.report_in(0)
    if not look(place, 0).adjustable:
        pytest.skip("nothing that this backend starts is said to be adjustable")
    wished = wish(resources={"cpuMillis": 1500})
    asked = Resources(cpu_millis=2000, memory_bytes=2**32)
    place.backend.reserve(replace(wished, wish=replace(wished.wish, resources=asked)), 0, NOW)

    assert look(place, 0).resources == asked
    assert place.backend.observe(OTHER, NOW).free == CAPACITY - asked


def test_one_that_ended_reserves_nothing(place: Place):
    start(place, 0)
    place.report_in(0)
    place.kill(0)

    assert place.backend.observe(JOB, NOW).free == CAPACITY


def test_asked_to_leave_it_leaves_and_says_so(place: Place):
    start(place, 0)
    place.report_in(0)
    place.backend.stop(JOB, 0, force=False, now=NOW)

    seen = until(place, 0, lambda seen: seen.phase is ReplicaPhase.ENDED)
    assert (seen.exit, seen.asked_at) == (ReplicaExit.LEFT, NOW)
    assert seen.ended_at is not None


def test_one_that_vanished_is_gone_until_it_is_written_down(place: Place):
    start(place, 0)
    place.report_in(0)
    place.kill(0)
    place.backend.close(JOB, 0, ReplicaExit.LOST, "the host burnt", NOW)

    seen = look(place, 0)
    assert (seen.phase, seen.exit, seen.detail, seen.ended_at) == (
        ReplicaPhase.ENDED,
        ReplicaExit.LOST,
        "the host burnt",
        NOW,
    )


def test_what_lives_cannot_be_written_off(place: Place):
    start(place, 0)
    place.report_in(0)
    place.backend.close(JOB, 0, ReplicaExit.LOST, "wrongly", NOW)

    assert look(place, 0).phase is ReplicaPhase.RUNNING


def test_an_ended_replica_is_not_started_again(place: Place):
    start(place, 0)
    place.report_in(0)
    place.kill(0)
    place.backend.close(JOB, 0, ReplicaExit.LOST, "", NOW)
    start(place, 0)

    assert look(place, 0).phase is ReplicaPhase.ENDED


def test_stopping_what_is_gone_is_no_error(place: Place):
    start(place, 0)
    place.report_in(0)
    place.kill(0)
    place.backend.stop(JOB, 0, force=True, now=NOW)
    place.backend.stop(JOB, 99, force=False, now=NOW)

    assert look(place, 0).phase is ReplicaPhase.GONE


def test_a_token_is_there_until_it_is_cleared(place: Place):
    start(place, 0)
    place.backend.put_token(JOB, "brn_secret")
    before = place.backend.has_token(JOB)
    place.backend.clear(JOB)

    assert (before, place.backend.has_token(JOB)) == (True, False)


def test_a_living_agent_gives_its_environment_back(place: Place):
    if isinstance(place, OnKubeflow | OnJobSet):
        pytest.skip("a template of others is its author's: no environment of ours reaches it")
    place.backend.start(wish(), 0, {"WANDB_KEY": "s=cret", "OTHER": "x"}, NOW)
    place.report_in(0)

    assert place.backend.environment(JOB, frozenset({"WANDB_KEY"})) == {"WANDB_KEY": "s=cret"}
    assert place.backend.environment(JOB, frozenset({"NEW"})) is None


def test_nobody_alive_gives_no_environment(place: Place):
    assert place.backend.environment(JOB, frozenset({"WANDB_KEY"})) is None
