"""Gangs on nodes that take some pods and not others: whole, or nothing is held."""

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from brain.errors import BadInput
from scaler.kubernetes.dependents.gangs import Gangs, GangState
from scaler.kubernetes.kinds.documents import job_document
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.pods.gang import GATE
from scaler.kubernetes.pods.identity import INDEX, NAME, replica_of
from scaler.kubernetes.pods.orders import specimen
from scaler.kubernetes.runtime import Key
from scaler.kubernetes.runtime.cluster import POD
from scaler.kubernetes.runtime.store import Store
from tests.kubernetes import jobs
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.clusters import MARK, here
from tests.kubernetes.kubelet import FakeKubelet, node
from tests.kubernetes.operating import Place, Stage, living, operating, until
from tests.kubernetes.real import ground
from tests.kubernetes.scheduling import Scheduler

TEAM = {"key": "team", "value": "others", "effect": "NoSchedule"}
FOUR = ("n0", "n1", "n2", "n3")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ZONE = "topology.kubernetes.io/zone"
Affinity = dict[str, Any]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Four nodes of 8 GPUs, two in each of two zones."""
    with ground(tmp_path_factory.mktemp("apiserver")) as running:
        kubelet, scheduler = FakeKubelet(running), Scheduler(running)
        for number, name in enumerate(FOUR):
            labels = {ZONE: f"z{number // 2}"}
            kubelet.add_nodes(name, cpu="16", memory="64Gi", gpus=8, labels=labels)
        try:
            yield Stage(running, kubelet)
        finally:
            scheduler.close()
            kubelet.close()


@pytest.fixture
def place(stage: Stage, tmp_path: Path) -> Iterator[Place]:
    with operating(stage.ground, tmp_path) as made, living(made):
        yield made


@contextmanager
def tainted(stage: Stage, *names: str, taint: Json = TEAM) -> Iterator[None]:
    """Nodes of another team, or with another taint, for a while."""
    hands = stage.ground.hands
    for name in names:
        hands.write_taints(name, lambda had: [*had, taint])
    try:
        yield
    finally:
        for name in names:
            hands.write_taints(name, lambda had: [t for t in had if t["key"] != taint["key"]])


def gang(size: int, patience: int | None = None, **more: Any) -> Json:
    """A job of ``size`` replicas of 8 GPUs each, which has no other size."""
    resources = {"cpu": "1", "nvidia.com/gpu": 8}
    bounds = {"replicas": size, "minReplicas": size, "maxReplicas": size}
    made = jobs.job("torchrun", "t.py", resources=resources, **bounds)
    made["spec"]["replicaSpecs"]["worker"]["template"]["spec"].update(more)
    if patience is not None:
        made["spec"]["gangPatience"] = patience
    return made


def others(place: Place, stage: Stage, *names: str) -> list[str]:
    """Pods of others that hold the GPUs of these nodes."""
    limits = {"nvidia.com/gpu": "8"}
    container = {"name": "main", "image": "x", "resources": {"limits": limits, "requests": limits}}
    for name in names:
        chosen = {"kubernetes.io/hostname": name}
        spec = here({"containers": [container], "nodeSelector": chosen})
        metadata = {"name": f"others-{name}", "namespace": place.namespace}
        stage.ground.hands.create(("", "pods"), {"metadata": metadata, "spec": spec})
    found = [f"others-{name}" for name in names]
    until("they run", lambda: all(phase(place, name) == "Running" for name in found))
    known(place, *found)
    return found


def known(place: Place, *names: str) -> None:
    """Wait until the operator has heard on which nodes pods of others are.

    A gate that opens before that lets a gang in where they are; it lets go after its patience.
    """
    seen = place.operator.manager.store(POD)

    def placed(name: str) -> bool:
        pod = seen.get(Key(place.namespace, name))
        return pod is not None and bool(pod["spec"].get("nodeName"))

    until("the operator has heard of them", lambda: all(placed(name) for name in names))


def phase(place: Place, name: str) -> str:
    found = {p["metadata"]["name"]: p for p in place.cluster.list(POD, place.namespace).items}
    return str(found[name]["status"]["phase"]) if name in found else ""


def of_the_job(place: Place) -> list[Json]:
    found = place.cluster.list(POD, place.namespace).items
    return [dict(pod) for pod in found if replica_of(pod) is not None]


def homes(place: Place) -> list[str]:
    """Nodes that the job's pods hold."""
    return sorted(pod["spec"]["nodeName"] for pod in of_the_job(place) if "nodeName" in pod["spec"])


def near(kind: str, key: str) -> Affinity:
    """Affinity, or anti-affinity, of a gang's pods to each other."""
    term = {"labelSelector": {"matchLabels": {NAME: "digits"}}, "topologyKey": key}
    return {kind: {REQUIRED: [term]}}


def test_a_gang_for_which_too_few_nodes_bear_its_pods_never_fits(stage: Stage, place: Place):
    with tainted(stage, "n1", "n2", "n3"):
        made = place.apply(gang(2, patience=1))
        place.says(made, "Feasible", "False", "NeverFits", "team=others:NoSchedule")

        assert not of_the_job(place)


@pytest.mark.parametrize(
    "key",
    [
        "nvidia.com/gpu",
        "karpenter.sh/disrupted",
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
        "node.cilium.io/agent-not-ready",
    ],
)
def test_taints_that_admission_bears_or_that_pass_make_no_job_infeasible(
    stage: Stage, place: Place, key: str
):
    with tainted(stage, *FOUR, taint={"key": key, "value": "x", "effect": "NoSchedule"}):
        place.says(place.apply(gang(2)), "Feasible", "True", "Fits")


def test_pods_of_others_that_a_gang_wants_near_may_come_later(place: Place):
    affinity = near("podAffinity", ZONE)
    (own,) = affinity["podAffinity"][REQUIRED]
    cache = {"labelSelector": {"matchLabels": {"app": "cache"}}, "topologyKey": ZONE}
    affinity["podAffinity"][REQUIRED] = [cache, own]

    made = place.apply(gang(2, affinity=affinity))
    place.says(made, "Feasible", "True", "Fits")
    place.says(made, "Scheduled", "False", "WaitingForCapacity", "is excluded by pod affinity")


def test_a_gang_that_wants_to_be_near_itself_never_fits_what_no_zone_holds(place: Place):
    made = place.apply(gang(3, patience=1, affinity=near("podAffinity", ZONE)))

    place.says(made, "Feasible", "False", "NeverFits", "2 fit on the 4 nodes")


def test_a_gang_holds_nothing_while_nodes_that_it_may_not_have_are_free(stage: Stage, place: Place):
    with tainted(stage, "n2", "n3"):
        busy = others(place, stage, "n0")
        made = place.apply(gang(2))
        place.says(made, "Scheduled", "False", "WaitingForCapacity", "team=others:NoSchedule")
        assert (homes(place), place.condition(made, "Feasible")) == ([], ("True", "Fits", ""))

        for name in busy:
            place.cluster.delete(POD, place.namespace, name, grace_seconds=0)
        until("both run", lambda: len(place.run()) == 2, place.pods)
        assert homes(place) == ["n0", "n1"]


def test_a_gang_that_bears_a_taint_runs_there(stage: Stage, place: Place):
    with tainted(stage, *FOUR):
        place.apply(gang(2, tolerations=here({"tolerations": [TEAM]})["tolerations"]))
        until("both run", lambda: len(place.run()) == 2, place.pods)


def test_pods_that_keep_each_other_off_need_as_many_zones(place: Place):
    made = place.apply(gang(3, patience=1, affinity=near("podAntiAffinity", ZONE)))

    place.says(made, "Feasible", "False", "NeverFits", "kept free by pod anti-affinity")


def test_pods_that_want_to_be_near_begin_where_all_find_room(stage: Stage, place: Place):
    others(place, stage, "n0")
    place.apply(gang(2, affinity=near("podAffinity", ZONE)))

    # The scheduler would have put the first on n1, and none beside it.
    until("both run", lambda: len(place.run()) == 2, place.pods)
    assert homes(place) == ["n2", "n3"]


def test_pods_that_want_another_near_begin_in_all_its_domains(stage: Stage, place: Place):
    others(place, stage, "n1", "n3")
    for name in ("n0", "n2"):
        spec = here({"containers": [{"name": "main", "image": "x"}], "nodeName": name})
        metadata = {"name": f"cache-{name}", "namespace": place.namespace}
        labels = {"labels": {"app": "cache"}}
        stage.ground.hands.create(("", "pods"), {"metadata": metadata | labels, "spec": spec})
    known(place, "cache-n0", "cache-n2")
    cache = {"labelSelector": {"matchLabels": {"app": "cache"}}, "topologyKey": ZONE}

    place.apply(gang(2, affinity={"podAffinity": {REQUIRED: [cache]}}))
    until("both run", lambda: len(place.run()) == 2, place.pods)
    assert homes(place) == ["n0", "n2"]


def test_a_gang_that_lost_a_node_lets_go_of_the_others_after_its_patience(
    stage: Stage, place: Place
):
    with tainted(stage, "n2", "n3"):
        made = place.apply(gang(2, patience=3))
        until("both run", lambda: len(place.run()) == 2, place.pods)
        stage.kubelet.lose_node("n1")
        try:
            stage.kubelet.evict_lost("n1")
            stage.kubelet.forget_pods("n1")
            until("none is held", lambda: not homes(place), lambda: homes(place))
            place.told("GangLetGo", "1 of the 2 pods that must start together")
            assert (place.condition(made, "Scheduled") or ("",))[0] == "False"
        finally:
            stage.kubelet.find_node("n1")
        until("both run again", lambda: len(place.run()) == 2, lambda: place.status(made))
        place.says(made, "Scheduled", "True", "GangAdmitted")


def test_a_job_that_ends_rank_by_rank_keeps_those_that_finish(stage: Stage, place: Place):
    made = place.apply(gang(2, patience=1))
    until("both run", lambda: len(place.run()) == 2, place.pods)
    names = {index: pod["metadata"]["name"] for index, pod in place.pods().items()}
    until("Brain knows", lambda: (place.condition(made, "Running") or ("",))[0] == "True")

    stage.kubelet.exit(names["1"], 0, namespace=place.namespace)
    until("one is ready", lambda: place.status(made).get("readyReplicas") == 1)
    ended = datetime.now(UTC)
    until("its patience is over", lambda: datetime.now(UTC) - ended > timedelta(seconds=2))
    assert place.run() == {"0"}
    stage.kubelet.exit(names["0"], 0, namespace=place.namespace)
    place.says(made, "Complete", "True", "Succeeded")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"tolerations": "all"}, "tolerations"),
        ({"nodeSelector": {"slots": 4}}, "nodeSelector.slots"),
        ({"nodeSelector": {"pool": ["a"]}}, "nodeSelector.pool"),
        ({"overhead": {"cpu": "much"}}, "overhead.cpu"),
        ({"resources": {"requests": 7}}, "resources.requests"),
        ({"affinity": ["near"]}, "affinity"),
        ({"affinity": {"podAffinity": "near"}}, "affinity.podAffinity"),
        ({"affinity": {"podAffinity": {REQUIRED: {}}}}, f"affinity.podAffinity.{REQUIRED}"),
        ({"affinity": {"podAntiAffinity": {REQUIRED: ["host"]}}}, "affinity.podAntiAffinity"),
        ({"affinity": {"podAffinity": {REQUIRED: [{"labelSelector": 1}]}}}, "0.labelSelector"),
        ({"affinity": {"podAffinity": {REQUIRED: [{"namespaces": "a"}]}}}, "0.namespaces"),
        ({"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": []}]}}}, "0.topologyKey"),
        (
            {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": 1}]}}}},
            "nodeSelectorTerms.0.matchFields",
        ),
    ],
)
def test_what_says_wrongly_where_pods_may_come_is_named(spec: Json, field: str):
    made = gang(2)
    made["spec"]["replicaSpecs"]["worker"]["template"]["spec"].update(spec)
    made["metadata"]["uid"] = "u"

    with pytest.raises(BadInput, match=re.escape(field)):
        read_elastic_job(made)


NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Bystander:
    """What a gang needs of upkeep."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        #: Whom each request waits for.
        self.meeting: threading.Barrier | None = None

    def patch(self, pod: Json, patch: Json) -> None:
        if self.meeting is not None:
            self.meeting.wait()
        self.opened.append(pod["metadata"]["name"])


class Gang:
    """A gang of two under a clock of its own."""

    def __init__(self, *nodes: Json, patience: int | None = None) -> None:
        obj = gang(2, patience=patience)
        obj["metadata"] |= {"uid": "u", "generation": 1}
        self.obj: Json = obj
        self.nodes, self.pods, self.upkeep = Store(), Store(), Bystander()
        for each in nodes:
            # Where templates are marked for a real cluster, its nodes are, too.
            each["metadata"]["labels"][MARK] = "yes"
            self.nodes.put(each)
        self.gangs = Gangs(cast(Any, self.upkeep), self.pods, self.nodes)
        self.ended: list[str] = []

    def look(self, after_seconds: float) -> GangState:
        """So long after noon."""
        job, mine = read_elastic_job(self.obj), list(self.pods)
        now = NOW + timedelta(seconds=after_seconds)
        return self.gangs.tend(job, job_document(job), mine, self._end, now)

    def _end(self, pod: Mapping[str, Any]) -> None:
        self.ended.append(pod["metadata"]["name"])

    def lose(self, id: int) -> None:
        """A pod of it is gone."""
        self.pods.drop(Key(self.obj["metadata"]["namespace"], f"p{id}"))

    def pod(
        self,
        id: int,
        where: str = "",
        gated: bool = False,
        made: float = 0,
        bound: float = 0,
        done: bool = False,
    ) -> None:
        """A pod of it; ``made`` and ``bound`` so many seconds after noon."""
        like = specimen(read_elastic_job(self.obj))
        metadata = {**like["metadata"], "name": f"p{id}", "creationTimestamp": told(made)}
        metadata["labels"] = metadata["labels"] | {INDEX: str(id)}
        spec = {**like["spec"], **({"schedulingGates": [{"name": GATE}]} if gated else {})}
        status = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        if where:
            spec["nodeName"] = where
            status = {"type": "PodScheduled", "status": "True", "lastTransitionTime": told(bound)}
        phase = "Succeeded" if done else "Running" if where else "Pending"
        said = {"phase": phase, "conditions": [status]}
        self.pods.put({"metadata": metadata, "spec": spec, "status": said})


def told(after_seconds: float) -> str:
    return (NOW + timedelta(seconds=after_seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def a_node(name: str, came: float = -3600, gpus: int = 8, **more: Any) -> Json:
    made = node(name, gpus=gpus, **more)
    made["metadata"]["creationTimestamp"] = told(came)
    return made


def test_a_gang_keeps_what_it_has_in_part_for_a_quarter_of_an_hour():
    gang = Gang(a_node("n0"), a_node("n1", gpus=4))
    gang.pod(0, "n0")
    gang.pod(1, gated=True)

    assert "1 of 2 pods have nodes and keep them until 12:15 UTC" in gang.look(0).waiting
    assert (gang.look(899).let_go, gang.ended) == ("", [])
    assert "no further node became free" in gang.look(900).let_go
    assert gang.ended == ["p0"]


def test_a_node_that_comes_renews_the_patience_and_one_that_is_not_for_it_does_not():
    gang = Gang(a_node("n0"), a_node("n1", came=600, gpus=4))
    gang.pod(0, "n0", bound=60)
    gang.pod(1, gated=True)
    assert gang.look(0).look_seconds == 15 * 60 + 600
    strange = a_node("n2", came=1400, taints=[TEAM])
    gang.nodes.put(strange)

    assert gang.look(1499).let_go == ""
    assert gang.look(1500).let_go


def test_a_gang_that_just_fell_apart_has_all_its_patience():
    gang = Gang(a_node("n0"), patience=60)
    gang.pod(0, "n0")
    assert gang.look(3600).look_seconds == 60

    # The one that is missing was made a while later.
    gang.pod(1, gated=True, made=3610)
    assert gang.look(3620).look_seconds == 50


def test_where_the_scheduler_knew_better_the_gate_stays_shut_for_a_while():
    gang = Gang(a_node("n0"), a_node("n1"), patience=60)
    gang.pod(0, "n0")
    gang.pod(1)
    assert gang.look(0).look_seconds == 60
    assert gang.look(60).let_go
    assert gang.ended == ["p0", "p1"]

    for id in (0, 1):
        gang.lose(id)
        gang.pod(id + 2, gated=True)

    assert "the scheduler found no nodes" in gang.look(61).waiting
    assert gang.upkeep.opened == []
    assert gang.look(120).waiting == ""
    assert sorted(gang.upkeep.opened) == ["p2", "p3"]


def test_the_gates_of_a_gang_open_at_the_same_time():
    gang = Gang(a_node("n0"), a_node("n1"))
    # Neither request is answered before the other one is sent.
    gang.upkeep.meeting = threading.Barrier(2, timeout=30)
    gang.pod(0, gated=True)
    gang.pod(1, gated=True)

    assert gang.look(0).waiting == ""
    assert sorted(gang.upkeep.opened) == ["p0", "p1"]


def test_a_gang_of_which_a_pod_is_done_lets_go_of_nothing():
    gang = Gang(a_node("n0"), a_node("n1"), patience=60)
    gang.pod(0, "n0")
    gang.pod(1, "n1", done=True)

    for after_seconds in (0, 3600):
        looked = gang.look(after_seconds)
        assert (looked.let_go, looked.look_seconds) == ("", None)
    assert gang.ended == []


def test_what_a_pod_beyond_the_gang_waited_for_is_no_patience_of_the_gang():
    gang = Gang(a_node("n0"), a_node("n1"), patience=60)
    gang.pod(0, "n0", made=-3600, bound=-3600)
    gang.pod(1, "n1", made=-3600, bound=-3600)
    gang.pod(2, gated=True, made=-3600)
    said = {"type": "Scheduled", "status": "False", "lastTransitionTime": told(-3600)}
    gang.obj["status"] = {"conditions": [said]}
    assert gang.look(0).let_go == ""

    gang.lose(1)
    assert gang.look(10).look_seconds == 60
    assert gang.look(69).let_go == ""
    assert gang.look(70).let_go
