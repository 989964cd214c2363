"""Requests for the sizes of a job with groups, asked of a Brain that comes and goes."""

from copy import deepcopy
from types import SimpleNamespace
from typing import Any, cast

import pytest

from brain.errors import Conflict, Unavailable
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.plans.requests import Requests
from scaler.kubernetes.status.conditions import resize_waits
from tests.kubernetes import jobs

Json = dict[str, Any]


class Brain:
    """Accepts each request while it is there."""

    def __init__(self, **groups: int) -> None:
        self.there, self.groups, self.asked = True, groups, list[tuple[str | None, int]]()
        self.plan: Any = None

    @property
    def size(self) -> int:
        return sum(self.groups.values())

    def view(self) -> Any:
        wished = [SimpleNamespace(name=n, replicas_wished=c) for n, c in self.groups.items()]
        return SimpleNamespace(
            replicas_wished=self.size,
            generation=len(self.asked),
            plan=self.plan,
            groups=tuple(wished),
        )

    def resize(self, _: object, replicas: int, *__: str, group: str | None = None) -> Any:
        if not self.there:
            raise Unavailable("no answer")
        self.asked.append((group, replicas))
        name = group or "worker"
        if group and replicas == self.groups[group]:
            raise Conflict("job digits already has these values, or a plan will give them to it")
        self.groups[name] += replicas - (self.groups[name] if group else self.size)
        target = SimpleNamespace(replicas=self.size)
        explanation = SimpleNamespace(reason="asked")
        plan = SimpleNamespace(
            target=target, generation=len(self.asked), explanation=explanation, active=False
        )
        return SimpleNamespace(plan=plan)


class Object:
    """A job of four replicas, two of them of the group ``a``, and the looks at it."""

    def __init__(self, brain: Brain) -> None:
        self.brain, self.said = brain, list[str]()
        groups = {"a": {"replicas": 2}}
        self.obj = jobs.job("t", replicas=4, minReplicas=4, maxReplicas=9, groups=groups)
        self.obj["metadata"] |= {"uid": "u", "generation": 1}
        cluster = SimpleNamespace(get=lambda *_: {"metadata": {}})
        self.requests = Requests(
            cast(Any, cluster), cast(Any, brain), lambda *told: self.said.append(told[3])
        )
        self.look()

    def edit(self, *, replicas: int | None = None, **groups: int) -> None:
        """Edit the spec; without arguments in a field that is no size."""
        worker = self.obj["spec"]["replicaSpecs"]["worker"]
        worker["replicas"] = replicas or worker["replicas"]
        for name, count in groups.items():
            worker["groups"][name]["replicas"] = count
        self.obj["metadata"]["generation"] += 1

    def look(self) -> Json:
        """Look until nothing changes; return the status of the request."""
        for _ in range(5):
            obj = deepcopy(self.obj)
            answer = self.requests.size(obj, read_elastic_job(obj), self.brain.view())
            if answer is None or answer == obj.get("status", {}).get("request"):
                break
            self.obj["status"] = {"request": answer}
        found: Json = self.obj["status"]["request"]
        return found


@pytest.fixture
def brain() -> Brain:
    return Brain(worker=2, a=2)


@pytest.fixture
def grown(brain: Brain) -> Object:
    """The job after its group grew from two to three replicas."""
    made = Object(brain)
    made.edit(a=3)
    assert made.look()["outcome"] == "accepted"
    assert brain.asked == [("a", 3)]
    return made


def test_an_edit_of_a_group_that_is_taken_back_unheard_asks_for_no_size(
    brain: Brain, grown: Object
) -> None:
    brain.there = False
    grown.edit(a=4)
    assert grown.look()["outcome"] == "waiting"
    grown.edit(a=3)
    grown.look()
    brain.there = True
    told = grown.look()
    assert brain.asked == [("a", 3)]
    assert (told["outcome"], told["replicas"], told["groups"]) == ("accepted", 4, {"a": 3})


def test_a_group_edit_that_brain_hears_late_asks_for_no_size(brain: Brain, grown: Object) -> None:
    brain.there = False
    grown.edit(a=4)
    grown.look()
    grown.edit()
    grown.look()
    brain.there = True
    assert grown.look()["outcome"] == "accepted"
    assert brain.asked == [("a", 3), ("a", 4)]
    assert brain.size == 6


@pytest.mark.parametrize("first", ["replicas", "a"])
def test_both_edits_that_brain_did_not_hear_are_asked_for(
    brain: Brain, grown: Object, first: str
) -> None:
    brain.there = False
    edits = {"replicas": {"replicas": 7}, "a": {"a": 4}}
    for name in sorted(edits, key=lambda name: name != first):
        grown.edit(**edits[name])
        grown.look()
    grown.edit()
    assert grown.look()["outcome"] == "waiting"
    brain.there = True
    assert grown.look()["outcome"] == "accepted"
    assert brain.asked == [("a", 3), ("a", 4), (None, 7)]
    assert (brain.size, brain.groups["a"]) == (7, 4)


def test_a_size_that_is_taken_back_unheard_is_not_asked_for(brain: Brain, grown: Object) -> None:
    brain.there = False
    grown.edit(replicas=7)
    waits = grown.look()
    assert waits["outcome"] == "waiting"
    (condition,) = resize_waits(waits, ())
    assert condition.message.startswith(
        "another number of replicas was requested, but the request waits: Brain is"
    )
    grown.edit(replicas=4)
    brain.there = True
    assert grown.look()["outcome"] == "accepted"
    assert brain.asked == [("a", 3)]


@pytest.mark.parametrize(
    ("coming", "outcome"), [(None, "accepted"), (4, "accepted"), (5, "refused")]
)
def test_an_edit_of_a_group_that_is_already_true_is_accepted(
    brain: Brain, grown: Object, coming: int | None, outcome: str
) -> None:
    brain.there = False
    grown.edit(a=4)
    grown.look()
    # Meanwhile somebody gave the group as many, by `brain edit --role a`.
    brain.there, brain.groups["a"] = True, 4
    if coming:
        target = SimpleNamespace(roles=(("a", SimpleNamespace(replicas=coming)),))
        brain.plan = SimpleNamespace(active=True, target=target)
    told = grown.look()
    assert (told["outcome"], told["groups"]) == (outcome, {"a": 4})
    refusals = [why for why in grown.said if "already" in why]
    assert len(refusals) == (outcome == "refused")
    assert brain.asked == [("a", 3), ("a", 4)]


@pytest.mark.parametrize(("groups", "asked"), [({}, (None, 4)), ({"a": {"replicas": 1}}, ("a", 3))])
def test_an_edit_before_the_first_status_is_asked_for(
    groups: Json, asked: tuple[str | None, int]
) -> None:
    brain = Brain(worker=2, a=1) if groups else Brain(worker=2)
    obj = jobs.job("t", replicas=brain.size, minReplicas=2, maxReplicas=9, groups=groups)
    obj["metadata"] |= {"uid": "u", "generation": 1}
    cluster = SimpleNamespace(get=lambda *_: {"metadata": {}})
    requests = Requests(cast(Any, cluster), cast(Any, brain), lambda *_: None)

    def look() -> Json:
        now = deepcopy(obj)
        return requests.size(now, read_elastic_job(now), brain.view()) or {}

    assert look()["message"] == "the size at its start"
    worker = obj["spec"]["replicaSpecs"]["worker"]
    (worker["groups"]["a"] if groups else worker)["replicas"] = asked[1]
    obj["metadata"]["generation"] = 2

    assert (look()["outcome"], brain.asked) == ("accepted", [asked])


def test_the_size_granted_to_a_queued_job_is_within_its_resource_limits() -> None:
    brain = Brain(worker=0)
    limits = {"resourceLimits": {"cpu": "2"}}
    obj = jobs.job("t", resources={"cpu": "1"}, spec=limits, replicas=3, minReplicas=1)
    obj["metadata"] |= {"uid": "u", "generation": 1}
    requests = Requests(cast(Any, None), cast(Any, brain), lambda *_: None)

    told = requests.size(obj, read_elastic_job(obj), brain.view()) or {}

    assert (told["replicas"], told["granted"]) == (3, 2)
