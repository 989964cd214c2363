"""What the operator decides, purely: who is named, what is replaced, what is shown and kept."""

import json
from argparse import Namespace
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import msgspec
import pytest

from brain.client import TokenFile
from brain.errors import BadInput, NotFound, Unavailable
from brain.types.job import Intent, JobId, JobState
from brain.types.world import Cause, Member, ReplicaExit, World, WorldEvent, WorldReport
from scaler.kubernetes.brain import OperatorsBrain
from scaler.kubernetes.dependents import rigid
from scaler.kubernetes.dependents.roles import Roles, missing, processes
from scaler.kubernetes.dependents.upkeep import Upkeep, endpoint_of, place_of, services
from scaler.kubernetes.dependents.worlds import Worlds
from scaler.kubernetes.kinds import ElasticJob
from scaler.kubernetes.kinds.documents import job_document
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.operator.backend import KubernetesBackend
from scaler.kubernetes.operator.jobs import ElasticJobs, JobRules
from scaler.kubernetes.operator.options import operator_options
from scaler.kubernetes.plans.plans import Plans
from scaler.kubernetes.plans.requests import Requests
from scaler.kubernetes.pods import gang, identity
from scaler.kubernetes.pods.asking import asking
from scaler.kubernetes.pods.manifest import AgentInjection
from scaler.kubernetes.pods.orders import Installation
from scaler.kubernetes.runtime import Key, Kind, served
from scaler.kubernetes.runtime.cluster import Forbidden
from scaler.kubernetes.runtime.store import Store, StoreChange
from scaler.kubernetes.status.progress import PlanRetention, collected
from scaler.ports import ReplicaPhase
from tests import builders
from tests.kubernetes import jobs
from tests.scaler.wished import JOB, NOW, replica


def pod(
    id: int, address: str = "", *, phase: str = "Running", **annotations: str
) -> dict[str, Any]:
    labels = identity.labels("digits", "uid", "worker", id, rank=id, relaunches=0)
    status = {"phase": phase} | ({"podIP": address} if address else {})
    named = {f"{identity.DOMAIN}/{name}": value for name, value in annotations.items()}
    metadata = {"name": f"p{id}", "labels": labels, "annotations": named}
    return {"metadata": metadata, "spec": {"nodeName": "n0"}, "status": status}


def told(endpoint: str) -> str:
    return json.dumps({"endpoint": endpoint})


def test_the_eldest_with_an_address_is_named():
    assert endpoint_of([pod(1, "10.0.0.2"), pod(0), pod(2, "10.0.0.3")]) == "10.0.0.2:29399"
    assert endpoint_of([pod(0)]) == ""


def test_who_was_named_stays_so_while_it_lives():
    pods = [pod(0, "10.0.0.1"), pod(3, "10.0.0.4", place=told("10.0.0.4:29399"))]

    assert endpoint_of(pods) == "10.0.0.4:29399"
    assert endpoint_of([pods[0], pod(3, "10.0.0.4", phase="Failed")]) == "10.0.0.1:29399"


@pytest.mark.parametrize("nonsense", ["{", "[1]", "none"])
def test_a_place_that_somebody_edited_is_none(nonsense: str):
    assert endpoint_of([pod(0, "10.0.0.1", place=nonsense)]) == "10.0.0.1:29399"


def test_a_pod_is_told_its_nodes_place_and_who_is_gone():
    labels = {"topology.kubernetes.io/zone": "z"}

    assert place_of(pod(0), "e:1", labels, [4, 2]) == {
        "endpoint": "e:1",
        "topology": "z/-/-/-",
        "gone": [2, 4],
    }
    assert place_of(pod(0), "", {}, ()) is None


def world(*replicas: int, ended: bool = False, stepping: bool = True) -> World:
    members = tuple(
        Member(replica=id, group_rank=rank, processes=1, node="n", address="")  # type: ignore[arg-type]
        for rank, id in enumerate(replicas)
    )
    return World(
        job=JOB,
        epoch=3,
        generation=0,
        cause=Cause.START,
        members=members,
        formed_at=NOW,
        stepping_at=NOW if stepping else None,
        ended_at=NOW if ended else None,
    )


def reported(
    known: World | None, *running: int, queued: bool = False
) -> tuple[WorldEvent, int] | None:
    seen = [replica(id, ReplicaPhase.RUNNING) for id in running]
    told = rigid.report(
        JobId(JOB),
        seen,
        known,
        wished=2,
        generation=1,
        processes=lambda _: 1,
        queued=queued,
        now=NOW,
    )
    return told and (told.event, told.epoch)


def test_a_world_is_told_once_all_its_pods_run():
    assert reported(None, 0) is None
    assert reported(None, 0, 1) == (WorldEvent.STEPPING, 1)
    assert reported(world(0, 1), 0, 1) is None


def test_a_world_that_formed_while_its_job_was_queued_steps_once_the_job_starts():
    assert reported(None, 0, 1, queued=True) == (WorldEvent.FORMED, 1)
    assert reported(world(0, 1, stepping=False), 0, 1, queued=True) is None
    assert reported(world(0, 1, stepping=False), 0, 1) == (WorldEvent.STEPPING, 3)


def test_others_in_a_pods_place_are_another_world():
    assert reported(world(0, 1), 0, 2) == (WorldEvent.STEPPING, 4)
    assert reported(world(0, 1, ended=True), 0, 1) == (WorldEvent.STEPPING, 4)


def test_nobody_holds_replicas_of_a_job_that_no_agent_of_ours_runs():
    ours, plain = (
        {**made, "metadata": {**made["metadata"], "uid": "u", "generation": 1}}
        for made in (jobs.job("brain-run", "t.py"), jobs.job("torchrun", "t.py"))
    )
    house = Installation(injection=AgentInjection(image="brain:1"), brain_url="http://brain")

    assert rigid.held(world(0, 1), ours, house) == {0, 1}
    assert rigid.held(world(0, 1, ended=True), ours, house) is None
    assert rigid.held(world(0, 1), plain, house) == frozenset()
    assert rigid.held(None, plain, house) == frozenset()
    assert rigid.held(None, ours, house) is None
    # Without a Brain nobody tells a coordinator whom to let go.
    assert rigid.held(None, ours, replace(house, brain_url=None)) == frozenset()


def test_a_plan_replaces_pods_that_were_told_another_size():
    pods = [pod(0, generation="0"), pod(1, generation="2"), pod(2, phase="Failed", generation="0")]

    assert [each["metadata"]["name"] for each in rigid.outdated(pods, 2)] == ["p0"]


def plan(name: str, generation: int, age: float) -> dict[str, Any]:
    at = (NOW - timedelta(seconds=age)).isoformat()
    return {"metadata": {"name": name}, "status": {"generation": generation, "finishTime": at}}


class Brain(OperatorsBrain):
    """A Brain that has two jobs, without a network."""

    def __init__(self, told: Callable[[JobId], None] = lambda job: None) -> None:
        super().__init__(cast(Any, None), "pool", told=told)

    def _all(self) -> dict[JobId, Any]:
        return {JobId("a"): None, JobId("b"): None}

    def detail(self, job: JobId) -> Any:
        return SimpleNamespace(world=None, replicas=())


class WithoutSecrets:
    """A backend whose API server does not answer."""

    def told(self, *_: object, **__: object) -> None:
        raise Unavailable("get secrets: no answer")


class WithoutObjects:
    """An API server that has no object."""

    def get(self, kind: Kind, namespace: str, name: str) -> Any:
        raise NotFound(f"{kind} {namespace}/{name}")


def keeping(brain: OperatorsBrain, cluster: object = None, **more: Any) -> ElasticJobs:
    return ElasticJobs(
        cast(Any, cluster or WithoutObjects()),
        jobs=Store({"uid": lambda obj: (obj["metadata"]["uid"],)}),
        pods=Store(),
        nodes=Store(),
        backend=cast(Any, WithoutSecrets()),
        brain=brain,
        events=cast(Any, None),
        rules=lambda: JobRules(house=Installation()),
        clock=lambda: NOW,
        **more,
    )


def test_a_job_that_cannot_be_told_of_does_not_keep_the_others_from_it():
    heard: list[JobId] = []

    def told(job: JobId) -> None:
        heard.append(job)
        raise KeyError(job)

    Brain(told).look()

    assert sorted(heard) == ["a", "b"]


def test_a_job_whose_secret_cannot_be_read_is_asked_about_again():
    kept = keeping(Brain())

    kept.mirror.learn(JOB)

    assert kept.mirror.unheard == {JOB}


def test_a_job_of_a_namespace_that_is_not_served_is_nobodys_orphan():
    class Theirs(Brain):
        cancelled: ClassVar[list[JobId]] = []

        def views(self) -> Any:
            going = {"state": JobState.RUNNING, "intent": Intent.RUN}
            return {
                JobId("a"): SimpleNamespace(project="team", name="digits", **going),
                JobId("b"): SimpleNamespace(project="theirs", name="digits", **going),
            }

        def cancel(self, job: JobId) -> Any:
            self.cancelled.append(job)

    kept = keeping(Theirs(), namespaces=("team",))

    kept.withdrawals.sweep()

    assert Theirs.cancelled == ["a"]


def a_backend() -> KubernetesBackend:
    return KubernetesBackend(
        cast(Any, None),
        pods=Store(),
        nodes=Store(),
        find=lambda job: None,
        house=Installation,
        pool="pool",
    )


def test_a_pod_that_was_listed_after_brain_was_heard_ends_as_it_did():
    """At a failover Brain may be heard before the pods are known."""
    backend = a_backend()
    backend.told(JOB, believed=[0], used=1, named=None, epoch=0, now=NOW)
    made = pod(0, ending='{"exit": "left", "detail": "scaled down"}')
    made["metadata"]["labels"][identity.UID] = JOB
    key = Key("team", "p0")

    backend.changed(StoreChange(key, None, made), NOW)
    backend.changed(StoreChange(key, made, None), NOW)

    assert [one.exit for one in backend.observe(JOB, NOW).replicas] == [ReplicaExit.LEFT]


def test_nothing_of_a_job_that_is_forgotten_stays():
    backend, made = a_backend(), pod(0)
    made["metadata"]["labels"][identity.UID] = JOB
    backend.changed(StoreChange(Key("team", "p0"), made, None), NOW)
    before = backend.jobs()

    backend.forget(JOB)

    assert (before, backend.jobs()) == ([JOB], [])


def test_volcano_is_looked_for_where_the_operator_has_rights():
    class Namespaced:
        def list(self, kind: object, namespace: str, *, limit: int) -> None:
            if namespace != "team":
                raise Forbidden("podgroups is forbidden")

    assert served(cast(Any, Namespaced()), gang.POD_GROUP, ["team", "other"])
    assert not served(cast(Any, Namespaced()), gang.POD_GROUP, [])


class Hands:
    """An upkeep that only writes down."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.patched: list[dict[str, Any]] = []

    def patch(self, pod: object, patch: dict[str, Any]) -> None:
        self.patched.append(patch)

    def services(self, job: ElasticJob) -> None:
        self.made.append(job.metadata.name)

    def apply(self, kind: object, obj: dict[str, Any]) -> None:
        self.made.append(obj["metadata"]["name"])


def a_job(generation: int, replicas: int = 1, **spec: Any) -> ElasticJob:
    obj = jobs.job("torchrun", "t.py", replicas=replicas, spec=spec)
    obj["metadata"] |= {"uid": JOB, "generation": generation}
    # As it is after a look while Brain was away.
    return read_elastic_job(obj | {"status": {"observedGeneration": generation}})


def test_services_are_made_although_the_status_was_written_before():
    hands = Hands()
    roles = Roles(cast(Any, hands), Store())

    for generation in (1, 1, 2):
        job = a_job(generation, replicas=2)
        roles.name(job, job_document(job), NOW, rigid=True)

    assert hands.made == ["digits", "digits"]


def test_services_and_a_budget_that_somebody_deleted_are_made_again():
    hands, job = Hands(), a_job(1, replicas=2)
    roles = Roles(cast(Any, hands), Store())
    upkeep = Upkeep(cast(Any, hands), Store(), Store())

    for minutes in (0, 9, 11, 12):
        now = NOW + timedelta(minutes=minutes)
        roles.name(job, job_document(job), now, rigid=True)
        upkeep.keep_budget(job, 2, now)

    assert hands.made == ["digits", identity.budget_name("digits")] * 2


class Writes(WithoutObjects):
    """A cluster that takes everything."""

    def apply(self, kind: object, obj: dict[str, Any]) -> None:
        pass


def test_nothing_of_an_unfinished_job_whose_object_is_gone_stays():
    kept, job = keeping(Brain(), cluster=Writes()), a_job(1, replicas=2)
    obj = {"metadata": {"uid": JOB, "name": "digits", "namespace": "team"}, "status": {}}
    roles, upkeep, pace = kept._roles, kept._upkeep, kept._status._pace
    roles.name(job, job_document(job), NOW, rigid=True)
    upkeep.keep_budget(job, 2, NOW)
    pace.pause(obj, {"replicas": 0}, NOW)
    held = (roles._named, upkeep._kept, pace._unwritten)
    before = [JOB in each for each in held]

    kept.changed(StoreChange(Key("team", "digits"), obj, None))

    assert (before, [JOB in each for each in held]) == ([True] * 3, [False] * 3)


def test_a_pod_that_has_no_others_needs_no_name():
    hands, job = Hands(), a_job(1)

    Roles(cast(Any, hands), Store()).name(job, job_document(job), NOW, rigid=True)

    assert hands.made == []


def test_each_worker_that_a_plan_may_add_has_a_name():
    job = a_job(1, distributionStrategy="ParameterServerStrategy")
    role = job.spec.replica_specs["worker"]
    grown = msgspec.structs.replace(role, max_replicas=3)
    spec = msgspec.structs.replace(job.spec, replica_specs={"worker": grown, "ps": role})
    job = msgspec.structs.replace(job, spec=spec)

    named = [service["metadata"]["name"] for service in processes(job, job_document(job))]

    assert named == [
        f"digits-edljob-{each}" for each in ("worker-0", "worker-1", "worker-2", "ps-0")
    ]
    # An edit applies all of them again, and no service is two different ones.
    assert not {service["metadata"]["name"] for service in services(job)} & {*named}


def with_servers() -> ElasticJob:
    """A job whose chief and servers have addresses."""
    obj = jobs.job("python", "t.py", replicas=2)
    roles = obj["spec"]["replicaSpecs"]
    roles |= {"ps": roles["worker"], "chief": {**roles["worker"], "replicas": 1}}
    obj["spec"]["distributionStrategy"] = "ParameterServerStrategy"
    obj["metadata"] |= {"uid": JOB, "generation": 1}
    return read_elastic_job(obj)


def test_services_select_no_pod_of_an_earlier_job_of_the_name():
    job = with_servers()
    (chief,) = missing(job, "chief", [], 2, NOW)
    earlier = {**chief["metadata"]["labels"], identity.OBJECT: "earlier"}
    made = [*services(job), *cast(Any, processes(job, job_document(job)))]
    selectors = [service["spec"]["selector"].items() for service in made]

    assert any(each <= chief["metadata"]["labels"].items() for each in selectors)
    assert not any(each <= earlier.items() for each in selectors)


def test_pods_that_an_earlier_operator_made_get_the_label_that_services_select():
    hands, job, pods = Hands(), with_servers(), Store()
    roles = Roles(cast(Any, hands), pods)
    (chief,) = missing(job, "chief", [], 2, NOW)
    ended, placeholder = deepcopy(cast(Any, chief)), asking(job, identity.WORKER, 0, (), None)
    ended |= {"metadata": ended["metadata"] | {"name": "ended"}, "status": {"phase": "Failed"}}
    for pod in (chief, ended, placeholder):
        pods.put(cast(Any, pod))
        cast(Any, pod)["metadata"]["labels"].pop(identity.OBJECT, None)

    roles.name(job, job_document(job), NOW, rigid=True)

    assert hands.patched == [{"metadata": {"labels": {identity.OBJECT: JOB}}}]


def test_finished_plans_go_by_count_and_age_and_the_standing_one_never():
    plans = [plan("a", 1, 500), plan("b", 2, 400), plan("c", 3, 10), plan("d", 4, 5)]

    assert collected(plans, 9, NOW, PlanRetention(count=3, seconds=450)) == {"a"}
    assert collected(plans, 1, NOW, PlanRetention(count=1, seconds=450)) == {"b", "c"}


class Removals:
    """A cluster from which plans are deleted."""

    def __init__(self) -> None:
        self.gone: list[str] = []

    def delete(self, kind: object, namespace: str, name: str, *, uid: str | None) -> None:
        self.gone.append(name)


def collecting(made: dict[str, Any], *known: dict[str, Any]) -> list[str]:
    """Plans that go at one look at ``made``, where these jobs are and Brain was not heard yet."""
    cluster, plans, there = Removals(), Store(), Store()
    plans.put(made)
    for each in known:
        there.put(each)
    door = Plans(
        cast(Any, cluster),
        plans=plans,
        jobs=there,
        pods=Store(),
        brain=Brain(),
        events=cast(Any, None),
        clock=lambda: NOW,
    )
    door.reconcile(Key(made["metadata"]["namespace"], made["metadata"]["name"]))
    return cluster.gone


def an_old_plan(spec: dict[str, Any]) -> dict[str, Any]:
    ended = (NOW - timedelta(hours=2)).isoformat()
    made = jobs.plan(spec, uid="p", resourceVersion="1")
    return made | {"status": {"phase": "Rejected", "finishTime": ended}}


def test_no_plan_goes_before_brain_said_which_one_stands():
    job = jobs.job("brain-run", "t.py")
    job["metadata"] |= {"uid": JOB, "resourceVersion": "1"}
    spec = {"ownerJob": "digits", "replicaResourceSpecs": {"worker": {"replicas": 2}}}

    assert collecting(an_old_plan(spec), job) == []
    assert collecting(an_old_plan(spec)) == ["bigger"]


def test_a_plan_that_cannot_be_read_goes_after_a_while():
    assert collecting(an_old_plan({"ownerJob": "digits"})) == ["bigger"]


def options(tmp_path: Path, **given: Any) -> Namespace:
    (tmp_path / "scaler.token").write_text("brn_x\n")
    base = {
        "url": "http://brain",
        "token_file": None,
        "pool": None,
        "namespace": [],
        "submit_to": [],
        "own_namespace": "brain",
        "kubeconfig": None,
        "context": None,
        "pods_url": None,
        "agent_image": None,
        "agent_python": None,
        "mode": "shadow",
        "metrics": None,
        "workers": 4,
        "in_flight": 8,
        "poll_seconds": 2.0,
        "host_ports": "20000-29999",
        "lost_node_seconds": 30.0,
        "lease_seconds": 10.0,
    }
    return Namespace(**base | given)


def test_the_command_line_is_understood(tmp_path: Path):
    made = operator_options(options(tmp_path, agent_image="brain:1"), tmp_path)

    assert (made.pool, made.mode) == ("kubernetes", "shadow")
    assert isinstance(made.token, TokenFile)
    assert made.injection is not None
    assert made.injection.image == "brain:1"


def test_without_a_brain_no_token_is_needed(tmp_path: Path):
    made = operator_options(options(tmp_path, url="none", token_file=tmp_path / "none"), tmp_path)

    assert (made.url, made.token) == (None, "")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"host_ports": "1-5"}, "not a range of ports"),
        ({"lease_seconds": 0.1}, "too short"),
        ({"submit_to": ["team"], "namespace": ["other"]}, "add --namespace team"),
        ({"submit_to": ["team"], "url": "none"}, "needs a Brain"),
    ],
)
def test_what_it_cannot_use_is_refused(tmp_path: Path, given: dict[str, Any], says: str):
    with pytest.raises(BadInput, match=says):
        operator_options(options(tmp_path, **given), tmp_path)


def test_a_suspension_by_a_queue_is_no_persons_before_the_status_says_so():
    asked: list[str] = []

    class Told:
        def suspend(self, job: JobId) -> Any:
            asked.append("suspend")
            return SimpleNamespace(intent=Intent.SUSPEND)

        def resume(self, job: JobId) -> Any:
            asked.append("resume")
            return SimpleNamespace(intent=Intent.RUN)

    requests = Requests(cast(Any, None), cast(Any, Told()), lambda *said: None)
    stale = {"metadata": {"uid": "a", "generation": 1}, "status": {}}

    def look(suspend: bool, intent: Intent) -> None:
        found = SimpleNamespace(
            metadata=SimpleNamespace(uid="a"), spec=SimpleNamespace(suspend=suspend)
        )
        requests.intent(stale, cast(Any, found), cast(Any, SimpleNamespace(intent=intent)))

    look(suspend=True, intent=Intent.RUN)
    assert requests.suspended(stale), "its queue holds it"
    look(suspend=False, intent=Intent.SUSPEND)
    assert asked == ["suspend", "resume"]
    assert not requests.suspended(stale), "the next suspension is a person's"
    look(suspend=False, intent=Intent.SUSPEND)
    assert asked == ["suspend", "resume"]


def test_a_world_of_ours_is_told_once_brain_has_let_its_job_start():
    told: list[WorldReport] = []
    brain = cast(Any, SimpleNamespace(report_world=told.append))
    worlds, document = Worlds(brain, lambda: NOW), builders.document()
    seen = [replica(id, ReplicaPhase.RUNNING) for id in (0, 1)]
    view = SimpleNamespace(state=JobState.QUEUED, epoch=None, generation=0, replicas_wished=2)

    def tell(*states: JobState) -> list[tuple[str, int, int]]:
        for view.state in states:
            worlds.tell(JobId(JOB), document, cast(Any, view), seen, ours=True)
        return [(one.event, one.epoch, len(one.members)) for one in told]

    assert tell(JobState.QUEUED) == []
    assert tell(JobState.STARTING, JobState.STARTING) == [("stepping", 1, 2)]
    # A Brain that lost its database queues the job again, and knows no world.
    assert len(tell(JobState.QUEUED, JobState.STARTING)) == 2
