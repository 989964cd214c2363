"""Status is written when it changes, events are few, metrics have the names that people know."""

from datetime import timedelta
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.kubernetes.runtime.cluster import EVENT, Cluster
from scaler.kubernetes.runtime.events import BURST, SIMILAR, About, Correlator, Recorder
from scaler.kubernetes.runtime.metrics import RuntimeMetrics
from scaler.kubernetes.runtime.status import StatusCondition, conditions, difference, write_status
from tests.kubernetes.shelf import NOON, THING, Shelf, VirtualClock, merged, thing

READY = StatusCondition(type="Ready", status=True, reason="AllRunning", message="3 of 3 run")
JSON = st.recursive(
    st.integers() | st.text(max_size=2) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
STATUS = st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)


def test_a_transition_is_dated_when_the_status_changes_and_not_before() -> None:
    first = conditions(None, [READY], generation=1, now=NOON)
    later = NOON + timedelta(hours=1)
    same = StatusCondition(type="Ready", status=True, reason="Some", message="2 of 3 run")
    other = StatusCondition(type="Ready", status=None, reason="Unknown")
    assert conditions(first, [same], generation=2, now=later)[0] == {
        "type": "Ready",
        "status": "True",
        "observedGeneration": 2,
        "lastTransitionTime": "2026-01-01T12:00:00Z",
        "reason": "Some",
        "message": "2 of 3 run",
    }
    (changed,) = conditions(first, [other], generation=2, now=later)
    assert (changed["status"], changed["lastTransitionTime"]) == ("Unknown", "2026-01-01T13:00:00Z")


def test_conditions_of_other_types_stay() -> None:
    first = conditions(None, [READY], generation=1, now=NOON)
    degraded = StatusCondition(type="Degraded", status=False, reason="AllWell")
    both = conditions(first, [degraded], generation=1, now=NOON)
    assert [each["type"] for each in both] == ["Ready", "Degraded"]


@given(STATUS, STATUS)
@settings(max_examples=150, deadline=None)
def test_a_patch_makes_one_status_into_another(known: Any, wanted: Any) -> None:
    assert merged(known, difference(known, wanted)) == wanted


def cluster(shelf: Shelf) -> Cluster:
    clock = VirtualClock()
    return Cluster(shelf, clock=clock, random=Random(1), sleep=clock.sleep)


def test_a_status_that_is_so_already_is_not_written() -> None:
    shelf = Shelf()
    stored = shelf.put(thing("a", status={"phase": "Running"}))
    assert write_status(cluster(shelf), THING, stored, {"phase": "Running"}) is None
    assert shelf.requests == []


def test_a_status_is_written_for_the_version_that_was_looked_at() -> None:
    shelf = Shelf()
    stored = shelf.put(thing("a", status={"phase": "Running", "replicas": 2}))
    write_status(cluster(shelf), THING, stored, {"phase": "Failed", "replicas": 2})
    (request,) = shelf.requests
    assert request.path.endswith("/things/a/status")
    assert request.body == {"metadata": {"resourceVersion": "1"}, "status": {"phase": "Failed"}}


def about(name: str = "a") -> About:
    return About.of(thing(name) | {"metadata": {"name": name, "namespace": "team", "uid": "u"}})


def test_the_same_words_again_count_up_one_event_for_ten_minutes() -> None:
    seen = Correlator()
    entries = [
        seen.observe(
            about(), "Normal", "Scaled", "to 4", NOON + timedelta(seconds=elapsed), elapsed
        )
        for elapsed in (0.0, 500.0, 1000.0, 1700.0)
    ]
    assert [entry and entry.count for entry in entries] == [1, 2, 3, 1]
    assert len({entry.name for entry in entries if entry}) == 2


def test_many_messages_of_one_reason_become_one_event() -> None:
    seen = Correlator()
    entries = [
        seen.observe(about(), "Warning", "Failed", f"pod {number}", NOON, 0.0)
        for number in range(SIMILAR + 5)
    ]
    combined = [entry for entry in entries if entry and entry.message.startswith("one of many")]
    assert len(combined) == 5
    assert len({entry.name for entry in combined}) == 1
    assert combined[-1].count == 5


def test_an_object_that_talks_too_much_is_not_heard_for_a_while() -> None:
    seen = Correlator()
    heard = [seen.observe(about(), "Normal", f"R{number}", "m", NOON, 0.0) for number in range(40)]
    assert sum(entry is not None for entry in heard) == BURST
    assert seen.observe(about("b"), "Normal", "R", "m", NOON, 0.0) is not None
    assert seen.observe(about(), "Normal", "R", "m", NOON, 300.0) is not None


def test_an_event_is_created_once_and_then_counted() -> None:
    shelf = Shelf()
    recorder = Recorder(cluster(shelf), clock=VirtualClock(), instance="me")
    for _ in range(2):
        recorder.record(about(), "Normal", "Scaled", "to 4")
        recorder.step()
    assert [request.method for request in shelf.requests] == ["POST", "PATCH"]
    (stored,) = shelf.objects.values()
    assert (stored["count"], stored["reason"], stored["message"]) == (2, "Scaled", "to 4")
    assert stored["involvedObject"]["uid"] == "u"
    assert stored["reportingInstance"] == "me"


def test_an_event_that_the_server_threw_away_is_made_again() -> None:
    shelf = Shelf()
    recorder = Recorder(cluster(shelf), clock=VirtualClock())
    recorder.record(about(), "Normal", "Scaled", "to 4")
    recorder.step()
    (path,) = shelf.objects
    shelf.drop("team", path.rpartition("/")[2], EVENT)
    recorder.record(about(), "Normal", "Scaled", "to 4")
    recorder.step()
    assert [request.method for request in shelf.requests] == ["POST", "PATCH", "POST"]


def test_an_event_that_is_held_gives_way_to_one_that_says_more() -> None:
    shelf, clock = Shelf(), VirtualClock()
    recorder = Recorder(cluster(shelf), clock=clock)
    for name in ("a", "b"):
        recorder.record(about(name), "Normal", "Created", "1 pod", hold_seconds=10.0)
    recorder.step()
    assert not shelf.objects
    recorder.record(about("a"), "Normal", "Started", "1 runs", replaces="Created")
    clock.sleep(10.0)
    recorder.step()
    told = [(each["involvedObject"]["name"], each["reason"]) for each in shelf.objects.values()]
    assert sorted(told) == [("a", "Started"), ("b", "Created")]


def test_what_waits_too_long_is_dropped_and_counted() -> None:
    recorder = Recorder(cluster(Shelf()), clock=VirtualClock())
    for number in range(1005):
        recorder.record(about(f"job-{number}"), "Normal", "Scaled", "to 4")
    assert recorder.dropped == 5


def test_metrics_have_the_names_that_dashboards_of_go_operators_use() -> None:
    metrics = RuntimeMetrics()
    metrics.requests("https://10.0.0.1:6443")("apply", 200, 0.1)
    metrics.queue("jobs").added()
    metrics.controller("jobs", 4).reconciled("error", 0.2)
    metrics.leads("brain-scaler", True)
    text = metrics.text().decode()
    for line in (
        'rest_client_requests_total{code="200",host="10.0.0.1:6443",method="PATCH"} 1.0',
        'workqueue_adds_total{name="jobs"} 1.0',
        'controller_runtime_reconcile_total{controller="jobs",result="error"} 1.0',
        'controller_runtime_reconcile_errors_total{controller="jobs"} 1.0',
        'controller_runtime_max_concurrent_reconciles{controller="jobs"} 4.0',
        'leader_election_master_status{name="brain-scaler"} 1.0',
    ):
        assert line in text
