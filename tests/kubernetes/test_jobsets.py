"""JobSets on their real CRD: read, resized within their webhook's rules, from command to pods."""

import copy
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from brain import calls
from brain.client import BrainClient
from brain.errors import BadInput, Conflict, NotFound
from brain.types.job import JobId
from brain.types.world import ReplicaExit
from brain.views import JobView
from collectors.pods.sources import JOB_KINDS
from scaler.adapters.backend import ForeignBackend
from scaler.adapters.foreign import MANAGED_BY, MAX, WORKERS
from scaler.adapters.jobset import JOB, JOBSET, JobSets
from scaler.adapters.training import QUEUE, document
from scaler.kubernetes.runtime.cluster import NAMESPACE, POD, Cluster, Denied, Invalid, connect
from scaler.ports import ReplicaPhase
from tests.kubernetes.apiserver import Server, serving
from tests.kubernetes.eventually import repeating
from tests.kubernetes.kubelet import FakeKubelet
from tests.kubernetes.neighbours.jobset import PlayedJobSets, jobset
from tests.kubernetes.operating import until
from tests.kubernetes.scheduling import Scheduler
from tests.kubernetes.test_guide_kubernetes import DOCUMENTS
from tests.scaler.listing import ListedJobs
from tests.scaler.wished import NOW, wish
from tests.serving import service

Json = dict[str, Any]
GUIDE = yaml.safe_load(DOCUMENTS["jobset.yaml"])
ALLOWED = {MANAGED_BY: "brain"}


def read(**given: Any) -> Any:
    made = jobset(**given)
    made["metadata"]["uid"] = "u"
    return JobSets().training(made)


# What is read.


def test_the_command_says_the_bounds_and_annotations_narrow_them():
    found = read(workers=2, nodes="2:6", annotations=ALLOWED | {MAX: "4"})

    assert (found.replicas, list(found.bounds.sizes())) == (2, [2, 3, 4])
    assert found.pod_name(1) == "digits-workers-0-1"
    assert document(found).replicas.start == 2


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"annotations": {}}, "kubectl annotate jobset digits"),
        ({"nodes": "2"}, "no --nnodes=MIN:MAX"),
        ({"completionMode": "NonIndexed"}, "has completionMode NonIndexed"),
        ({"completions": 9}, "parallelism 1 and completions 9"),
    ],
    ids=["advise only", "fixed", "not indexed", "not equal"],
)
def test_hands_off_and_why(given: Json, says: str):
    assert says in (read(**given).refusal or "")


def test_a_number_of_jobs_is_for_good_and_another_manager_is_left_alone():
    made = jobset()
    made["metadata"]["uid"] = "u"
    made["spec"]["replicatedJobs"][0]["replicas"] = 3
    many = JobSets().training(made).refusal
    made["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"

    assert "has replicas 3, but Brain resizes only a replicated Job with 1 replica" in (many or "")
    assert "managed by kueue" in (JobSets().training(made).refusal or "")


def test_of_several_replicated_jobs_an_annotation_names_the_workers():
    made = jobset()
    made["metadata"]["uid"] = "u"
    other = made["spec"]["replicatedJobs"][0] | {"name": "driver"}
    made["spec"]["replicatedJobs"].insert(0, other)
    with pytest.raises(BadInput, match=f"driver, workers; set annotation {WORKERS}, which is None"):
        JobSets().training(made)
    made["metadata"]["annotations"][WORKERS] = "workers"

    assert JobSets().training(made).stem == "digits-workers-0"


# What is done, on the API server.


class Stand:
    """A JobSet at the API server, its controllers played, and new backends over it."""

    def __init__(self, server: Server, *, elastic: bool, **given: Any) -> None:
        self.cluster = Cluster(connect(kubeconfig=str(server.kubeconfig)))
        self.played = PlayedJobSets(server, elastic=elastic)
        self.cluster.create(NAMESPACE, {"metadata": {"name": "team"}})
        self.job = JobId(self.cluster.create(JOBSET, jobset(**given))["metadata"]["uid"])

    @property
    def backend(self) -> ForeignBackend:
        self.played.settle()
        return ForeignBackend(self.cluster, [JobSets()], ListedJobs(self.cluster, ["team"]))

    @property
    def sizes(self) -> tuple[int, int, int]:
        """What the JobSet asks for, what its Job asks for, and the pods that there are."""
        self.played.settle()
        spec = self.cluster.get(JOBSET, "team", "digits")["spec"]
        job = self.cluster.get(JOB, "team", "digits-workers-0")["spec"]
        asked = spec["replicatedJobs"][0]["template"]["spec"]
        assert asked["parallelism"] == asked["completions"]
        assert job["parallelism"] == job["completions"]
        return asked["parallelism"], job["parallelism"], len(self.pods())

    def pods(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.cluster.list(POD, "team").items]

    def grow(self, count: int) -> None:
        """Have so many replicas, as the scaler's loop does: the end of lost ones comes first."""
        seen = self.backend.observe(self.job, NOW)
        for each in seen.replicas:
            if each.phase is ReplicaPhase.GONE:
                self.backend.close(self.job, each.id, ReplicaExit.LOST, "", NOW)
        alive = sum(each.alive for each in seen.replicas)
        for replica in range(seen.next_id, seen.next_id + count - alive):
            self.backend.start(wish(count, job=self.job), replica, {}, NOW)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[Server, FakeKubelet]]:
    with serving(tmp_path) as up:
        kubelet, scheduler = FakeKubelet(up), Scheduler(up)
        kubelet.add_nodes("n0", cpu="16", memory="64Gi")
        yield up, kubelet
        scheduler.close()
        kubelet.close()


@pytest.fixture
def server(nodes: tuple[Server, FakeKubelet]) -> Server:
    return nodes[0]


@pytest.mark.parametrize(("elastic", "asked"), [(False, 2), (True, 4)], ids=["gate off", "on"])
def test_it_grows_in_the_job_or_where_the_webhook_takes_it_in_the_jobset(
    server: Server, elastic: bool, asked: int
):
    stand = Stand(server, elastic=elastic, workers=2)
    stand.grow(4)

    assert stand.sizes == (asked, 4, 4)


def test_the_highest_indexes_go_and_none_is_suspension(server: Server):
    stand = Stand(server, elastic=False, workers=3)
    before = stand.backend.observe(stand.job, NOW).replicas
    for replica in (2, 1):
        stand.backend.stop(stand.job, replica, force=False, now=NOW)
    small = stand.sizes
    stand.backend.stop(stand.job, 0, force=False, now=NOW)
    suspended = stand.cluster.get(JOBSET, "team", "digits")["spec"]["suspend"]

    assert [each.id for each in before] == [0, 1, 2]
    assert (small, suspended, stand.sizes[2]) == ((3, 1, 1), True, 0)


def test_a_restart_makes_the_job_anew_at_the_jobsets_size_and_it_grows_again(server: Server):
    stand = Stand(server, elastic=False, workers=1)
    stand.grow(3)
    stand.played.restart("digits")
    restarted = stand.sizes
    stand.grow(3)

    assert (restarted, stand.sizes) == ((1, 1, 1), (1, 3, 3))
    assert sum(each.alive for each in stand.backend.observe(stand.job, NOW).replicas) == 3


def test_a_suspended_jobset_whose_job_is_not_there_yet_is_resumed(server: Server):
    stand = Stand(server, elastic=False, workers=2, suspended=True)
    early = ForeignBackend(stand.cluster, [JobSets()], ListedJobs(stand.cluster, ["team"]))
    early.start(wish(1, job=stand.job), 0, {}, NOW)

    assert stand.cluster.get(JOBSET, "team", "digits")["spec"]["suspend"] is False


def suspend(
    cluster: Cluster, suspended: bool, *, name: str = "digits", where: str = "team"
) -> None:
    """As ``kubectl patch`` does, or Kueue."""
    cluster.merge(JOBSET, where, name, {"spec": {"suspend": suspended}})


def start(stand: Stand, version: int) -> None:
    """Have two more replicas, by a desired world of this version."""
    wanted = wish(2, job=stand.job)
    wanted = replace(wanted, wish=replace(wanted.wish, version=version))
    first = stand.backend.observe(stand.job, NOW).next_id
    for replica in (first, first + 1):
        stand.backend.start(wanted, replica, {}, NOW)


def test_a_jobset_that_a_person_suspended_is_left_so_until_brain_decides_anew(server: Server):
    stand = Stand(server, elastic=False, workers=2)
    stand.grow(2)
    suspend(stand.cluster, True)
    waits = stand.backend.observe(stand.job, NOW)
    start(stand, version=7)
    told = stand.backend.suspended_elsewhere(stand.job)
    stand.backend.heard(stand.job, True, version=7)
    start(stand, version=7)
    after, still = stand.backend.observe(stand.job, NOW), stand.sizes
    start(stand, version=8)

    assert told
    assert [each.phase for each in waits.replicas] == [ReplicaPhase.STARTING] * 2
    assert "somebody suspended JobSet digits" in (waits.lacking or "")
    assert [each.exit for each in after.replicas] == [ReplicaExit.LEFT] * 2
    assert (still, stand.sizes) == ((2, 2, 0), (2, 2, 2))


def test_a_jobset_that_a_person_resumed_runs_until_brain_decides_anew(server: Server):
    stand = Stand(server, elastic=False, workers=1)
    stand.backend.observe(stand.job, NOW)
    stand.backend.stop(stand.job, 0, **AT_ONCE)
    own = stand.backend.suspended_elsewhere(stand.job)
    suspend(stand.cluster, False)
    seen = stand.backend.observe(stand.job, NOW)
    (running,) = (each.id for each in seen.replicas if each.alive)
    stand.backend.stop(stand.job, running, **AT_ONCE)

    assert (own, stand.backend.suspended_elsewhere(stand.job)) == (None, False)
    assert stand.sizes == (1, 1, 1)


AT_ONCE: Json = {"force": False, "now": NOW}


@pytest.mark.parametrize("code", [0, 1])
def test_the_exit_code_of_a_pod_that_is_being_deleted_ends_no_job(
    nodes: tuple[Server, FakeKubelet], code: int
):
    server, kubelet = nodes
    stand = Stand(server, elastic=False, workers=2)
    stand.grow(2)
    stand.played.paused = True
    kubelet.lose_node("n0")  # a pod that is deleted stays until its node is back
    stand.cluster.delete(POD, "team", stand.pods()[0])
    kubelet.exit(stand.pods()[0], code)
    seen = stand.backend.observe(stand.job, NOW).replicas

    assert [each.exit for each in seen] == [None, None]


def test_a_resize_makes_no_jobset_anew_that_was_deleted_meanwhile(server: Server):
    stand = Stand(server, elastic=True, workers=2)
    read = stand.backend.find(stand.job)
    assert read is not None
    stand.cluster.delete(JOBSET, "team", "digits")
    for late in (
        lambda: JobSets().resize(stand.cluster, read, 3),
        lambda: JobSets().suspend(stand.cluster, read, True),
    ):
        with pytest.raises((Conflict, NotFound)):
            late()

    assert stand.cluster.list(JOBSET, "team").items == []


def test_a_jobset_that_is_being_deleted_is_left_alone():
    made = jobset(annotations=ALLOWED)
    made["metadata"] |= {"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}

    assert JobSets().training(made).refusal == "JobSet digits is being deleted"


def test_jobsets_of_one_name_in_two_namespaces_are_two_jobs_with_pods_of_their_own(server: Server):
    stand = Stand(server, elastic=False, workers=3)
    stand.cluster.create(NAMESPACE, {"metadata": {"name": "others"}})
    twin = jobset(workers=2)
    twin["metadata"]["namespace"] = "others"
    other = JobId(stand.cluster.create(JOBSET, twin)["metadata"]["uid"])
    stand.played.settle()
    listed = ListedJobs(stand.cluster, ["team", "others"])
    backend = ForeignBackend(stand.cluster, [JobSets()], listed)
    backend.stop(stand.job, backend.observe(stand.job, NOW).replicas[-1].id, force=False, now=NOW)
    stand.played.settle()

    seen = [len(backend.observe(job, NOW).replicas) for job in (stand.job, other)]
    assert (seen, stand.sizes) == ([3, 2], (3, 2, 2))


@pytest.mark.parametrize("length", [1, 52])
def test_the_longest_names_that_jobset_takes_are_read(length: int):
    made = jobset()
    made["metadata"] |= {"uid": "u", "name": "d" * length}
    found = JobSets().training(made)

    # A Job's name is a label of its pods.
    assert len(found.stem) <= 63
    assert document(found).name == "d" * length


def test_the_webhook_keeps_replicas_and_the_server_keeps_lone_completions(server: Server):
    stand = Stand(server, elastic=True, workers=2, suspended=True)
    made = stand.cluster.get(JOBSET, "team", "digits")["spec"]["replicatedJobs"]
    more = {"spec": {"replicatedJobs": [made[0] | {"replicas": 2}]}}
    stand.played.settle()

    with pytest.raises(Denied, match=r"spec\.replicatedJobs: Invalid value: field is immutable"):
        stand.cluster.merge(JOBSET, "team", "digits", more)
    with pytest.raises(Invalid, match=r"can only be modified in tandem with spec\.parallelism"):
        stand.cluster.merge(JOB, "team", "digits-workers-0", {"spec": {"completions": 3}})


# From the guide's object to pods, by the programs that a user starts.


@contextmanager
def adapters(server: Server, url: str, token: Path, home: Path) -> Iterator[None]:
    """The program that the guide starts."""
    command = [sys.executable, "-m", "scaler.adapters", f"--url={url}", f"--token-file={token}"]
    command += ["--namespace=research", "--pool=research", "--own-namespace=research"]
    command += [f"--kubeconfig={server.kubeconfig}", f"--home={home}"]
    with (home / "adapters.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


@dataclass(frozen=True)
class Research:
    """A namespace whose JobSets are in a pool of Brain, and all programs at work."""

    cluster: Cluster
    played: PlayedJobSets
    home: Path
    admin: BrainClient
    job: JobId

    def view(self) -> JobView | None:
        found = self.admin.send(calls.jobs()).items
        return next((each for each in found if each.id == self.job), None)

    def until(self, what: str, state: str) -> None:
        """Wait for a state of the job in Brain."""
        until(what, lambda: (view := self.view()) and view.state == state, self.told)

    def told(self) -> str:
        return f"{self.view()}\n{(self.home / 'adapters.log').read_text()}"

    def pods(self) -> int:
        return len(self.cluster.list(POD, "research").items)

    def suspended(self) -> bool:
        found = self.cluster.get(JOBSET, "research", "letters")
        return bool(found["spec"]["suspend"])

    def suspend(self, suspended: bool) -> None:
        suspend(self.cluster, suspended, name="letters", where="research")

    def brain(self, *words: str) -> None:
        """As a person types it."""
        said = subprocess.run(
            [sys.executable, "-m", "brain.cli", *words],
            env={**os.environ, "BRAIN_HOME": str(self.home), "BRAIN_PROJECT": "research"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.returncode == 0, said.stderr

    def worlds(self) -> set[tuple[int, int]]:
        """Replicas and generation of the world that lives."""
        world = self.admin.send(calls.job(self.job)).world
        alive = world is not None and world.ended_at is None
        return {(world.replicas, world.generation)} if world and alive else set()


@contextmanager
def researching(server: Server, home: Path, made: Json) -> Iterator[Research]:
    cluster = Cluster(connect(kubeconfig=str(server.kubeconfig)))
    played = PlayedJobSets(server)
    cluster.create(NAMESPACE, {"metadata": {"name": "research"}})
    job = JobId(cluster.apply(JOBSET, made, owner="kubectl")["metadata"]["uid"])
    home.mkdir()
    with (
        service(home, "--tick-seconds=0.3") as brain,
        repeating(played.settle),
        adapters(server, brain.url, home / "scaler.token", home),
        brain.client() as admin,
    ):
        yield Research(cluster, played, home, admin, job)


@pytest.mark.timeout(300)
def test_a_jobset_of_the_guide_is_resized_by_a_person(server: Server, tmp_path: Path):
    with researching(server, tmp_path / "home", GUIDE) as it:
        it.until("Brain sees it run", "Running")
        it.brain("resize", "letters", "3")
        until("three pods run", lambda: it.pods() == 3, it.told)
        until("Brain knows the new world", lambda: (3, 1) in it.worlds(), it.told)
        spec = it.cluster.get(JOB, "research", "letters-workers-0")["spec"]
    assert (spec["parallelism"], spec["completions"]) == (3, 3)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_jobset_suspended_during_a_plan_is_suspended_in_brain_and_resumes_at_the_plans_size(
    nodes: tuple[Server, FakeKubelet], tmp_path: Path
):
    server, kubelet = nodes
    # The script saves on SIGTERM and ends well.
    kubelet.sigterm_code = 0
    with researching(server, tmp_path / "home", GUIDE) as it:
        it.until("Brain sees it run", "Running")
        kubelet.hold()
        it.brain("resize", "letters", "3")
        until("a third pod waits", lambda: it.pods() == 3, it.told)
        it.suspend(True)
        it.until("Brain hears of it", "Suspended")
        until("no pod is left", lambda: it.pods() == 0, it.told)
        kubelet.hold(False)
        still = it.suspended()

        it.suspend(False)
        it.until("it runs again", "Running")
        until("Brain knows the new world", lambda: (3, 1) in it.worlds(), it.told)
        view = it.view()
    assert view is not None
    assert (still, view.failures, view.replicas) == (True, 0, 3)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_jobset_in_a_queue_is_suspended_and_resumed_by_kueue_alone(
    server: Server, tmp_path: Path
):
    made = copy.deepcopy(GUIDE)
    made["metadata"]["labels"] = {QUEUE: "research"}
    with researching(server, tmp_path / "home", made) as it:
        it.until("it waits for Kueue", "Suspended")
        it.suspend(False)
        it.until("Kueue admits it", "Running")
        it.suspend(True)
        it.until("Kueue evicts it", "Suspended")
        still = it.suspended()
        it.suspend(False)
        it.until("Kueue admits it again", "Running")
        view = it.view()
    assert view is not None
    assert (still, view.failures, view.replicas) == (True, 0, 2)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_jobset_that_was_suspended_in_brain_is_resumed_by_kubectl(server: Server, tmp_path: Path):
    with researching(server, tmp_path / "home", GUIDE) as it:
        it.until("Brain sees it run", "Running")
        it.brain("suspend", "letters")
        it.until("it is suspended", "Suspended")
        until("Brain suspended its object", it.suspended, it.told)
        it.suspend(False)
        it.until("it runs again", "Running")
        view = it.view()
    assert view is not None
    assert (it.suspended(), view.failures) == (False, 0)


def test_the_collector_counts_it_among_jobs():
    assert (f"apis/{JOBSET.api_version}", JOBSET.plural, JOBSET.kind) in JOB_KINDS
