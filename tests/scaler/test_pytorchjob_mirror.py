"""PyTorchJobs in Brain: a copy of each, worlds as their pods show them, sizes as wished."""

from pathlib import Path

import pytest

from brain import calls
from brain.client import BrainClient
from brain.cycle import turn
from brain.errors import BadInput
from brain.types.job import JobState
from brain.types.plan import PlanState
from brain.types.record import Role
from brain.types.resources import PoolName
from brain.types.world import Cause, World, WorldEvent
from brain.views import JobDetail, JobEdit, ResizeRequest
from scaler.adapters.backend import ForeignBackend
from scaler.adapters.kubeflow import PYTORCHJOB, PyTorchJobs
from scaler.adapters.mirror import Mirror
from scaler.adapters.worlds import reports
from scaler.kubernetes.brain import OperatorsBrain
from scaler.kubernetes.runtime.cluster import Cluster, Kind, Object
from scaler.ports import ReplicaPhase
from tests.api.app import Api
from tests.scaler.kubeflow import Kubeflow, elastic
from tests.scaler.listing import ListedJobs
from tests.scaler.wished import JOB, NOW, replica, seen, wish

training = PyTorchJobs().training


def told(kubeflow: Kubeflow, *phases: ReplicaPhase, known: World | None = None, wished: int = 1):
    read = training(kubeflow.job)
    pods = seen(*(replica(id, phase) for id, phase in enumerate(phases)))
    asked = wish(wished, generation=2).wish
    return reports(read, pods, known, asked, processes=2, now=NOW)


def world(*replicas: int, generation: int = 1) -> World:
    made = told(Kubeflow(elastic(workers=len(replicas))), *[ReplicaPhase.RUNNING] * len(replicas))
    members = tuple(m for m in made[0].members if m.replica in replicas)
    return World(
        job=JOB,
        epoch=4,
        generation=generation,
        cause=Cause.START,
        members=members,
        formed_at=NOW,
    )


def test_a_world_is_there_once_all_pods_run():
    kubeflow = Kubeflow(elastic(workers=2))

    assert told(kubeflow, ReplicaPhase.RUNNING, ReplicaPhase.STARTING) == ()
    formed = told(kubeflow, ReplicaPhase.RUNNING, ReplicaPhase.RUNNING, wished=2)
    assert [(r.event, r.epoch, r.generation) for r in formed] == [
        (WorldEvent.FORMED, 1, 2),
        (WorldEvent.STEPPING, 1, 2),
    ]
    assert [member.processes for member in formed[0].members] == [2, 2]


def test_the_same_pods_are_the_same_world():
    kubeflow = Kubeflow(elastic(workers=2))

    assert told(kubeflow, ReplicaPhase.RUNNING, ReplicaPhase.RUNNING, known=world(0, 1)) == ()


def test_other_pods_are_the_next_world():
    kubeflow = Kubeflow(elastic(workers=2))

    found = told(kubeflow, ReplicaPhase.RUNNING, ReplicaPhase.RUNNING, known=world(0), wished=2)

    assert [(r.epoch, r.generation, r.cause) for r in found] == [(5, 2, Cause.PLAN)] * 2


def test_pods_that_answer_no_wish_are_the_generation_that_stood():
    kubeflow = Kubeflow(elastic(workers=2))

    found = told(kubeflow, ReplicaPhase.RUNNING, ReplicaPhase.RUNNING, known=world(0), wished=5)

    assert [(r.generation, r.cause) for r in found] == [(1, Cause.MEMBERSHIP)] * 2


def test_a_world_without_pods_is_lost():
    found = told(Kubeflow(elastic(workers=1)), known=world(0))

    assert [(r.event, r.final) for r in found] == [(WorldEvent.LOST, False)]


@pytest.mark.parametrize(
    ("condition", "event"),
    [("Succeeded", WorldEvent.FINISHED), ("Failed", WorldEvent.LOST)],
)
def test_what_kubeflow_says_of_the_end_is_final(condition: str, event: WorldEvent):
    kubeflow = Kubeflow(elastic(workers=1))
    kubeflow.job["status"] = {"conditions": [{"type": condition, "status": "True"}]}

    found = told(kubeflow, known=world(0))

    assert [(r.event, r.final) for r in found] == [(event, True)]


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return Api(tmp_path)


def mirrored(api: Api, kubeflow: Kubeflow) -> tuple[Mirror, BrainClient]:
    client = api.client(Role.SCALER)
    backend = kubeflow.backend()
    for node in backend.nodes(api.now):
        client.send(calls.put_node(node))
    door = OperatorsBrain(client, "local")
    return Mirror(backend, door, client, clock=lambda: api.now), client


def detail(client: BrainClient) -> JobDetail:
    found: JobDetail = client.send(calls.job(JOB))
    return found


def think(api: Api) -> None:
    """As the service does every few seconds."""
    turn(api.stores, PoolName("local"), api.settings, api.now)


def test_from_pods_to_brain_and_back_through_a_plan(api: Api):
    kubeflow = Kubeflow(elastic(workers=1, most=4, cpu="500m"))
    mirror, client = mirrored(api, kubeflow)
    mirror.look()
    think(api)
    kubeflow.phase("digits-worker-0", "Running")
    mirror.look()
    running = detail(client).job.state
    with api.client(Role.ADMIN) as admin:
        admin.send(calls.resize(JOB, ResizeRequest(replicas=2)))
    think(api)
    wished = client.send(calls.world(JOB))
    kubeflow.backend().start(wish(2, generation=wished.generation), 1, {}, api.now)
    kubeflow.phase("digits-worker-1", "Running")
    api.pass_time(seconds=5)
    mirror.look()

    after = detail(client)
    assert (running, wished.replicas, kubeflow.workers) == (JobState.RUNNING, 2, 2)
    assert after.world is not None
    assert (after.world.epoch, after.world.replicas, after.world.generation) == (2, 2, 1)
    plans = client.send(calls.plans_of(JOB)).items
    assert plans[0].plan.state in (PlanState.APPLIED, PlanState.VERIFIED)


def test_a_person_suspends_it_and_resumes_it(api: Api):
    kubeflow = Kubeflow(elastic(workers=1, cpu="500m"))
    mirror, client = mirrored(api, kubeflow)
    mirror.look()
    think(api)
    kubeflow.phase("digits-worker-0", "Running")
    mirror.look()
    kubeflow.suspend(True)
    mirror.look()
    suspended = detail(client).job
    kubeflow.suspend(False)
    mirror.look()
    think(api)
    kubeflow.phase("digits-worker-0", "Running")
    mirror.look()

    assert (suspended.state, suspended.failures) == (JobState.SUSPENDED, 0)
    assert (detail(client).job.state, detail(client).job.failures) == (JobState.RUNNING, 0)


def test_amounts_that_a_template_says_are_no_plans_to_change(api: Api):
    kubeflow = Kubeflow(elastic(workers=1, cpu="500m"))
    backend = kubeflow.backend()
    _, client = mirrored(api, kubeflow)
    mirror = Mirror(backend, OperatorsBrain(client, "local"), client, clock=lambda: api.now)
    mirror.look()
    think(api)
    kubeflow.phase("digits-worker-0", "Running")
    mirror.look()
    (before,) = backend.observe(JOB, api.now).replicas
    with api.client(Role.ADMIN) as admin:
        admin.send(calls.edit(JOB, JobEdit(cpu_millis=700)))
    mirror.look()
    (after,) = backend.observe(JOB, api.now).replicas
    assert (before.unenforced, after.resources.cpu_millis) == ("", 500)
    assert "Brain does not change the amounts of a PyTorchJob" in after.unenforced


def test_a_job_whose_object_is_gone_is_ended(api: Api):
    kubeflow = Kubeflow(elastic(workers=1))
    mirror, client = mirrored(api, kubeflow)
    mirror.look()
    kubeflow.job["metadata"]["uid"] = "01998f00-0000-7000-8000-00000000000f"
    mirror.look()

    assert detail(client).job.intent == "cancel"


def test_nothing_of_a_job_whose_object_is_gone_stays(api: Api):
    kubeflow = Kubeflow(elastic(workers=1))
    mirror, _ = mirrored(api, kubeflow)
    mirror.look()
    kept = (mirror._told, mirror._backend._secrets._known)
    before = [JOB in each for each in kept]
    del kubeflow.objects[PYTORCHJOB.path("team", "digits")]
    mirror.look()

    assert (before, [JOB in each for each in kept]) == ([True, True], [False, False])


class Silent(ListedJobs):
    """Stores whose watch has told of no job."""

    def jobs(self, kind: Kind) -> list[Object]:
        return []


def test_a_job_whose_object_no_watch_has_told_of_goes_on(api: Api):
    kubeflow = Kubeflow(elastic(workers=1))
    mirror, client = mirrored(api, kubeflow)
    mirror.look()
    cluster = Cluster(kubeflow)
    backend = ForeignBackend(cluster, [PyTorchJobs()], Silent(cluster, ["team"]), pool="local")
    successor = Mirror(backend, OperatorsBrain(client, "local"), client, clock=lambda: api.now)

    successor.look()

    assert detail(client).job.intent == "run"


def test_a_job_that_cannot_be_one_is_left_alone(api: Api, caplog: pytest.LogCaptureFixture):
    kubeflow = Kubeflow(elastic(workers=1, least=4, most=2))
    mirror, _ = mirrored(api, kubeflow)
    mirror.look()

    assert "minReplicas 4 and maxReplicas 2" in caplog.text


def test_a_number_in_quotes_is_named():
    job = Kubeflow(elastic(workers=1)).job
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = "2"

    with pytest.raises(BadInput, match=r"Worker\.replicas '2' is not a whole number"):
        training(job)


def test_an_object_of_a_form_that_nobody_foresaw_keeps_no_look_from_ending(
    api: Api, caplog: pytest.LogCaptureFixture
):
    kubeflow = Kubeflow(elastic(workers=1))
    mirror, _ = mirrored(api, kubeflow)
    kubeflow.job["spec"]["elasticPolicy"] = ["x"]

    mirror.look()

    assert "PyTorchJob digits" in caplog.text
