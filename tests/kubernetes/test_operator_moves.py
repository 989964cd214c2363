"""Pods that a plan moves, pods of a lost node, pods that a quota refuses: at work on a cluster."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from brain import lifecycle
from brain.errors import BadInput, NotFound, Overloaded
from brain.lifecycle import applying
from brain.types.allocation import Allocation
from brain.types.job import ApprovalPolicy, JobId, PolicyMode
from brain.types.plan import PlanState, ScalePlan
from brain.types.resources import NodeName
from brain.types.world import Cause, Member, WorldEvent, WorldReport
from scaler.kubernetes.kinds.reading import read_elastic_job, read_scale_plan
from scaler.kubernetes.operator.backend import KubernetesBackend
from scaler.kubernetes.plans.migration import Migrations, left_by, marked, surplus
from scaler.kubernetes.pods import identity, places
from scaler.kubernetes.pods.orders import Installation
from scaler.kubernetes.pods.sight import look
from scaler.kubernetes.runtime.cluster import POD, Kind, Unreachable
from scaler.kubernetes.runtime.store import Store
from scaler.kubernetes.status.progress import only_moves
from tests import builders
from tests.kubernetes import jobs
from tests.kubernetes.operating import Place, Stage, accepted, living, operating, until
from tests.scaler.wished import NOW, wish

Json = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
QUOTA = Kind("", "v1", "resourcequotas", "ResourceQuota")


@pytest.fixture
def place(stage: Stage, tmp_path: Path) -> Iterator[Place]:
    with operating(stage.ground, tmp_path, lost_node_seconds=0.5) as made:
        yield made


@pytest.fixture
def evictions(stage: Stage) -> None:
    """Somebody says how many pods a disruption budget lets go; until then every one stays."""
    if not stage.ground.collects:
        pytest.skip("nobody counts what disruption budgets allow here")


def move(*names: str, **spec: Any) -> Json:
    return jobs.plan({"ownerJob": "digits", "migratePods": [{"name": n} for n in names]} | spec)


@pytest.mark.usefixtures("evictions")
def test_a_pod_is_replaced_elsewhere_before_it_goes(place: Place):
    accepted(place, replicas=1, minReplicas=1, maxReplicas=2)
    with living(place):
        until("it runs", lambda: place.run() == {"0"}, place.pods)
        first = place.pods()["0"]["spec"]["nodeName"]
        asked = place.apply(move("digits-edljob-worker-0"))

        until("another runs alone", lambda: place.run() == {"1"}, place.pods)
        place.says(asked, "Complete", "True", "Applied")

    assert place.pods()["1"]["spec"]["nodeName"] != first
    assert place.status(asked)["phase"] == "Verified"
    assert place.status(asked)["target"] == {"migrate": {"digits-edljob-worker-0": {}}}


def nodes_of(place: Place) -> Counter[str]:
    return Counter(pod["spec"].get("nodeName", "") for pod in place.pods().values())


def advise_nodes(place: Place, made: Json, nodes: dict[str, int]) -> int:
    """Brain's advice to have the replicas on these nodes, which needs nobody's approval."""
    uid, now = JobId(made["metadata"]["uid"]), place.api.now
    with place.api.stores.transaction() as tx:
        job = tx.jobs.get(uid)
        acts = replace(job.document, policy=ApprovalPolicy(mode=PolicyMode.AUTO))
        _, stands = lifecycle.standing(tx.plans.of(uid), job)
        here, there = (
            tuple((NodeName(n), k) for n, k in each.items()) for each in (nodes_of(place), nodes)
        )
        advice = builders.recommendation(
            current=replace(stands, nodes=here), target=replace(stands, nodes=there), decided_at=now
        )
        plan = lifecycle.propose(
            tx, replace(job, document=acts), advice, settings=place.api.settings, now=now
        )
    return plan.generation


def plan_of(place: Place, made: Json, generation: int) -> ScalePlan:
    with place.api.stores.transaction(read_only=True) as tx:
        return tx.plans.get(JobId(made["metadata"]["uid"]), generation)


def steps(place: Place, made: Json, epoch: int) -> None:
    """Report a world of all pods that run, as their agents would."""
    running = [(index, pod) for index, pod in sorted(place.pods().items()) if index in place.run()]
    members = tuple(
        Member(
            replica=int(index),
            group_rank=rank,
            processes=1,
            node=NodeName(pod["spec"]["nodeName"]),
            address=f"10.0.0.{rank}:29399",
        )
        for rank, (index, pod) in enumerate(running)
    )
    with place.api.stores.transaction() as tx:
        job = tx.jobs.get(JobId(made["metadata"]["uid"]))
        wished = lifecycle.wish(tx, job, place.api.settings)
        for event in (WorldEvent.FORMED, WorldEvent.STEPPING):
            said = WorldReport(
                job=job.id,
                event=event,
                epoch=epoch,
                members=members,
                cause=Cause.PLAN if epoch > 1 else Cause.START,
                generation=wished.generation,
                at=place.api.now,
                downtime_seconds=1.0 if epoch > 1 and event is WorldEvent.STEPPING else None,
                steps_redone=0 if epoch > 1 and event is WorldEvent.STEPPING else None,
            )
            lifecycle.world_reported(tx, said, settings=place.api.settings, now=place.api.now)


@pytest.mark.usefixtures("evictions")
@pytest.mark.parametrize("command", ["torchrun", "brain-run"])
def test_a_plan_of_brains_that_names_nodes_moves_pods_to_them(place: Place, command: str):
    made = place.apply(jobs.job(command, "t.py", resources={"cpu": "1"}, replicas=2))
    ours = command == "brain-run"
    with living(place):
        until("it runs", lambda: len(place.run()) == 2, place.pods)
        if ours:
            steps(place, made, 1)
        until("Brain knows that it trains", lambda: place.job(made).job.state == "Running")
        first, *_ = nodes_of(place)
        other = "n0" if first != "n0" else "n1"
        generation = advise_nodes(place, made, {other: 2})

        until("they are there", lambda: nodes_of(place)[other] == 2, place.pods)
        until("no other is left", lambda: nodes_of(place) == {other: 2}, lambda: nodes_of(place))
        if ours:
            steps(place, made, 2)
        until(
            "the plan is carried out",
            lambda: plan_of(place, made, generation).state is PlanState.APPLIED,
            lambda: plan_of(place, made, generation),
        )

    assert len(place.run()) == 2


def give_up(place: Place, made: Json, generation: int) -> None:
    """Let so much time pass that Brain gives the plan up."""
    plan, late = plan_of(place, made, generation), place.api.settings.verify_seconds
    with place.api.stores.transaction() as tx:
        then = plan.updated_at + timedelta(seconds=late)
        applying.apply(tx, plan, settings=place.api.settings, now=then)


def uids(place: Place) -> set[str]:
    """The pods that run."""
    return {place.pods()[index]["metadata"]["uid"] for index in place.run()}


def waits(place: Place, made: Json) -> bool:
    """Whether the job says that its move waits for room."""
    return "once the node has room" in str(place.status(made).get("message"))


@pytest.mark.parametrize("command", ["torchrun", "./train"])
def test_a_job_of_fixed_ranks_trains_on_while_its_move_finds_no_room(place: Place, command: str):
    made = place.apply(jobs.job(command, "t.py", resources={"cpu": "1"}, replicas=2))
    with living(place):
        until("it runs", lambda: len(place.run()) == 2, place.pods)
        until("Brain knows that it trains", lambda: place.job(made).job.state == "Running")
        before = uids(place)
        generation = advise_nodes(place, made, {"full": 2})

        until("it says why it stays", lambda: waits(place, made), lambda: place.status(made))
        give_up(place, made, generation)
        until("nothing waits", lambda: not waits(place, made), lambda: place.status(made))

    assert plan_of(place, made, generation).state is PlanState.FAILED
    assert (uids(place), len(place.pods())) == (before, 2)


def fill(place: Place, node: str, name: str, cpu: str) -> None:
    """A foreign pod takes a node's CPU, whether the node has it or not."""
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    made = {"metadata": {"name": name, "namespace": place.namespace}}
    place.cluster.create(POD, made | {"spec": {"nodeName": node, "containers": [container]}})


@pytest.mark.usefixtures("evictions")
@pytest.mark.parametrize("command", ["torchrun", "./train"])
def test_a_job_of_fixed_ranks_moves_once_there_is_room_and_heals_where_room_is(
    place: Place, command: str
):
    made = place.apply(jobs.job(command, "t.py", resources={"cpu": "1"}, replicas=2))
    with living(place):
        until("it runs", lambda: len(place.run()) == 2, place.pods)
        until("Brain knows that it trains", lambda: place.job(made).job.state == "Running")
        first, *_ = nodes_of(place)
        other = "n0" if first != "n0" else "n1"
        fill(place, other, "foreign", "15")
        advise_nodes(place, made, {other: 2})
        until("it waits for room", lambda: waits(place, made), lambda: place.status(made))
        stays = nodes_of(place)
        place.cluster.delete(POD, place.namespace, "foreign", grace_seconds=0)

        until("it is there", lambda: nodes_of(place) == {other: 2}, lambda: nodes_of(place))
        until("it runs there", lambda: len(place.run()) == 2, place.pods)
        fill(place, other, "newcomer", "15")
        lost = next(iter(place.pods().values()))["metadata"]["name"]
        place.cluster.delete(POD, place.namespace, lost, grace_seconds=0)
        both = {first: 1, other: 1}
        until("the lost one runs elsewhere", lambda: nodes_of(place) == both, place.pods)

    assert stays == {first: 2}


def test_pods_of_a_move_that_is_given_up_run_elsewhere(place: Place):
    made = place.apply(jobs.job("brain-run", "t.py", resources={"cpu": "1"}, replicas=2))
    with living(place):
        until("it runs", lambda: len(place.run()) == 2, place.pods)
        steps(place, made, 1)
        until("Brain knows that it trains", lambda: place.job(made).job.state == "Running")
        generation = advise_nodes(place, made, {"full": 2})
        until("pods wait for that node", lambda: nodes_of(place)[""] == 2, place.pods)
        for pod in place.pods().values():
            if pod["spec"].get("nodeName"):  # lost meanwhile
                name = pod["metadata"]["name"]
                with suppress(NotFound):
                    place.cluster.delete(POD, place.namespace, name, grace_seconds=0)
        give_up(place, made, generation)

        until("it runs again", lambda: len(place.run()) == 2, place.pods)
        until("no pod waits", lambda: len(place.pods()) == 2, place.pods)

    assert plan_of(place, made, generation).state is PlanState.FAILED


@contextmanager
def ending(stage: Stage, code: int) -> Iterator[None]:
    """Containers end with this code when their pod is deleted, until the block ends."""
    stage.kubelet.sigterm_code = code
    try:
        yield
    finally:
        stage.kubelet.sigterm_code = None


@pytest.mark.parametrize("code", [0, 1], ids=["saves and ends", "torchrun's code"])
def test_a_deleted_pod_is_replaced_whatever_its_exit_code(stage: Stage, place: Place, code: int):
    made = place.apply(jobs.job("torchrun", "t.py", resources={"cpu": "1"}, replicas=1))
    with living(place), ending(stage, code):
        until("it runs", lambda: place.run() == {"0"}, place.pods)
        until("Brain knows that it trains", lambda: place.job(made).job.state == "Running")
        place.cluster.delete(POD, place.namespace, "digits-edljob-worker-0")

        until("another runs", lambda: place.run() == {"1"}, lambda: place.job(made))
        until("Brain knows", lambda: place.job(made).job.epoch == 2, lambda: place.job(made))

    assert place.job(made).job.state == "Running"


def test_a_pod_that_is_not_there_is_named(place: Place):
    accepted(place, replicas=1, minReplicas=1, maxReplicas=2)
    asked = place.apply(move("digits-edljob-worker-7"))

    place.says(asked, "Accepted", "False", "OutOfBounds", "spec.migratePods.0.name")


def test_replicas_of_a_silent_node_run_elsewhere_soon(stage: Stage, place: Place):
    accepted(place, replicas=1, minReplicas=1, maxReplicas=2)
    with living(place):
        until("it runs", lambda: place.run() == {"0"}, place.pods)
        lost = place.pods()["0"]["spec"]["nodeName"]
        stage.kubelet.lose_node(lost)
        try:
            until("another runs", lambda: "1" in place.run(), place.pods)
        finally:
            stage.kubelet.find_node(lost)


def test_a_quota_that_holds_no_pod_is_told_on_the_job(stage: Stage, place: Place):
    if not stage.ground.collects:
        pytest.skip("nobody counts what quotas allow here")
    hard = {"metadata": {"name": "small", "namespace": place.namespace}}
    place.cluster.create(QUOTA, hard | {"spec": {"hard": {"cpu": "500m"}}})
    made = accepted(place, replicas=1, minReplicas=1, maxReplicas=2)
    with living(place):
        place.says(made, "Feasible", "False", "QuotaExceeded", "quota small allows")
    place.told("QuotaExceeded", "raise the quota, or ask for less")


# -- without a cluster -----------------------------------------------------------------------------


def a_pod(id: int, phase: str = "Running", moved_by: str = "") -> Json:
    labels = identity.labels("digits", "u", "worker", id, rank=id, relaunches=0)
    name = identity.pod_name("digits", "worker", id)
    annotations = {identity.MOVES: moved_by} if moved_by else {}
    metadata = {"namespace": "team", "name": name, "labels": labels, "annotations": annotations}
    return {"metadata": metadata, "spec": {"nodeName": f"n{id}"}, "status": {"phase": phase}}


class Hands:
    """A cluster that evicts what no budget keeps."""

    def __init__(self, *kept: str, error: Exception | None = None) -> None:
        self.kept, self.evicted = kept, list[str]()
        self._error = error or Overloaded("a budget says no", retry_after_seconds=1.0)

    def evict(self, namespace: str, name: str, *, uid: str | None) -> None:
        if name in self.kept:
            raise self._error
        self.evicted.append(name)


class Pods:
    """A cluster that makes pods and Secrets."""

    def __init__(self) -> None:
        self.made: list[Json] = []

    def get(self, kind: Kind, namespace: str, name: str) -> Json:
        raise NotFound("no Secret is there")

    def create(self, kind: Kind, obj: Json) -> Json:
        if kind == POD:
            self.made.append(obj)
        return obj


class Marks:
    """A cluster that keeps marks of pods."""

    def __init__(self) -> None:
        self.marks: dict[str, str | None] = {}

    def merge(self, kind: Kind, namespace: str, name: str, patch: Json) -> Json:
        self.marks[name] = patch["metadata"]["annotations"][identity.MOVES]
        return a_pod(int(name[-1]))


def carried_out(hands: Hands, *pods: Json, wished: int, at_once: bool = False) -> str:
    seen = [look(pod, number) for number, pod in enumerate(pods)]
    moves = Migrations(cast(Any, hands), Store())
    moving = [pod for pod in pods if marked(pod)]
    return moves.carry_out(moving, seen, wished, at_once=lambda pod: at_once)


def test_nothing_goes_before_others_run():
    hands = Hands()

    said = carried_out(hands, a_pod(0, moved_by="p"), a_pod(1, "Pending"), wished=1)

    assert (said, hands.evicted) == ("1 pods move once 1 replacements run elsewhere", [])


def test_what_others_stand_in_for_is_evicted():
    hands = Hands()

    assert carried_out(hands, a_pod(0, moved_by="p"), a_pod(1), wished=1) == ""
    assert hands.evicted == ["digits-edljob-worker-0"]


def test_a_job_of_fixed_ranks_lets_the_old_one_go_first():
    hands = Hands()

    carried_out(hands, a_pod(0, moved_by="p"), wished=1, at_once=True)

    assert hands.evicted == ["digits-edljob-worker-0"]


def test_a_budget_is_respected_and_named():
    hands = Hands("digits-edljob-worker-0")

    said = carried_out(hands, a_pod(0, moved_by="p"), a_pod(1), wished=1)

    assert said == "a disruption budget keeps digits-edljob-worker-0 in place for now"


def test_a_pod_of_two_budgets_is_named_with_the_servers_words():
    error = Unreachable("This pod has more than one PodDisruptionBudget (500)")
    hands = Hands("digits-edljob-worker-0", error=error)

    said = carried_out(hands, a_pod(0, moved_by="p"), a_pod(1), wished=1)

    assert said == f"the API server does not evict digits-edljob-worker-0 now: {error}"


def brains(state: PlanState = PlanState.APPLYING, **nodes: int) -> ScalePlan:
    """A plan of Brain, the fifth, that has two replicas on other nodes than before."""
    here, there = ((NodeName("n0"), 1), (NodeName("n1"), 1)), tuple(nodes.items())
    sizes = (Allocation(replicas=2, nodes=each) for each in (here, there))
    current, target = sizes
    return builders.plan(5, current=current, target=target, state=state)


def made_for(generation: int, pod: Json) -> Json:
    pod["metadata"]["annotations"][identity.GENERATION] = str(generation)
    return pod


def test_pods_beyond_the_number_of_their_node_move():
    pods = [made_for(4, a_pod(id)) for id in (0, 1)]

    assert surplus(brains(n0=2), pods) == [pods[1]]
    assert surplus(brains(n2=2), pods) == pods


def test_pods_that_were_made_for_the_plan_stay_where_they_came():
    pods = [made_for(5, a_pod(id)) for id in (0, 1)]

    assert surplus(brains(n2=2), pods) == []


def test_a_plan_that_is_over_or_changes_the_size_moves_nothing():
    pods = [made_for(4, a_pod(id)) for id in (0, 1)]
    grows = replace(brains(n2=2), current=Allocation(replicas=1))

    assert surplus(brains(PlanState.FAILED, n2=2), pods) == surplus(grows, pods) == []


def backend_of(cluster: Any, pods: Store) -> KubernetesBackend:
    made = jobs.job("brain-run", "t.py")
    made["metadata"] |= {"uid": "u", "namespace": "team"}
    return KubernetesBackend(
        cluster,
        pods=pods,
        nodes=Store(),
        find=lambda job: made,
        house=Installation,
        pool="pool",
    )


def required(pod: Json) -> list[tuple[str, list[str]]]:
    """The names that a pod's node must and must not have."""
    (term,) = pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return [(each["operator"], each["values"]) for each in term["matchFields"]]


def test_a_replica_that_stays_and_dies_is_replaced_on_the_node_that_others_leave():
    pods, cluster = Store(), Pods()
    backend = backend_of(cluster, pods)
    leaves = made_for(4, a_pod(0, moved_by="brain/5"))
    leaves["metadata"]["labels"][identity.UID] = "u"
    pods.put(leaves)
    backend.moving[JobId("u")] = ((NodeName("n0"), 1),)

    backend.start(wish(2, job=JobId("u")), 1, {}, NOW)
    backend.close_down()

    assert required(cluster.made[0]) == [("In", ["n0"])]


def test_a_wish_that_is_older_than_the_move_binds_no_pod_to_its_nodes():
    cluster = Pods()
    backend = backend_of(cluster, Store())
    old = wish(1, job=JobId("u"))
    old = replace(old, wish=replace(old.wish, nodes=((NodeName("n0"), 1),)))
    backend.moving[old.job] = ((NodeName("n1"), 1),)

    backend.start(old, 0, {}, NOW)
    backend.close_down()

    (pod,) = cluster.made
    assert required(pod) == [("In", ["n1"])]
    assert pod["metadata"]["annotations"][identity.MOVES_TO] == "n1"


def test_pods_that_a_person_moves_keep_the_mark_of_their_plan():
    pods, cluster = [made_for(4, a_pod(0, moved_by="mine")), made_for(4, a_pod(1))], Marks()
    moves = Migrations(cast(Any, cluster), Store())

    moves.follow(brains(n2=2), pods)
    moves.follow(brains(PlanState.FAILED, n2=2), pods)

    assert cluster.marks == {"digits-edljob-worker-1": "brain/5"}


def test_a_replica_goes_to_a_node_that_lacks_one():
    chosen = tuple(dict(brains(n0=1, n2=2).target.nodes).items())
    seen = [look(a_pod(0), 0)]
    starting = {**a_pod(1), "spec": {}}

    assert places.nearest(chosen, seen) == "n2"
    assert places.nearest(chosen, [*seen, look(starting, 1), look(starting, 2)]) is None
    assert places.nearest((), seen) is None


def test_no_replacement_goes_to_the_node_that_is_left():
    assert left_by([a_pod(0, moved_by="p"), a_pod(1)]) == {"n0"}


def test_a_pod_that_is_over_does_not_move():
    pods = Store()
    ended = a_pod(0, "Failed")
    ended["metadata"]["labels"][identity.UID] = "u"
    pods.put(ended)
    obj = jobs.job("brain-run", "t.py", replicas=1)
    obj["metadata"]["uid"] = "u"
    plan = read_scale_plan(move("digits-edljob-worker-0"))

    with pytest.raises(BadInput, match="these can move: none"):
        Migrations(cast(Any, None), pods).begin(plan, read_elastic_job(obj))


def test_a_plan_with_a_size_is_no_mere_move():
    job = read_elastic_job(jobs.job("brain-run", "t.py", replicas=1))
    sized = {"replicaResourceSpecs": {"worker": {"replicas": 2}}}

    assert only_moves(read_scale_plan(move("a")), job)
    assert not only_moves(read_scale_plan(move("a", **sized)), job)
