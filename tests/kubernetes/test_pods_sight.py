"""A replica as its pod shows it, and why pods end."""

from datetime import timedelta
from typing import Any

import pytest

from brain.types.world import ReplicaExit
from scaler.kubernetes.pods import identity
from scaler.kubernetes.pods.failures import Remedy, failure, stuck, unschedulable
from scaler.kubernetes.pods.sight import RESTART, look, vanished
from scaler.ports import ReplicaPhase
from tests.scaler.wished import NOW

WORD = '{"exit": "left", "exit_code": 0, "detail": "let go", "at": "2026-11-21T12:00:00Z"}'


def pod(phase: str, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "creationTimestamp": "2026-11-21T11:00:00Z", "annotations": {}},
        "spec": {"nodeName": "n1", "containers": [{"name": "main"}]},
        "status": {"phase": phase, **status},
    }


def ended(code: int, *, reason: str = "Error", message: str = "", **status: Any) -> dict[str, Any]:
    state = {"exitCode": code, "reason": reason, "message": message}
    containers = [{"name": "main", "state": {"terminated": state}}]
    return pod("Failed" if code else "Succeeded", containerStatuses=containers, **status)


@pytest.mark.parametrize(
    ("found", "remedy"),
    [
        (ended(137, reason="OOMKilled"), Remedy.MEMORY),
        (ended(247), Remedy.MEMORY),
        (ended(143), Remedy.RETRY),
        (ended(1), Remedy.FATAL),
        (ended(202), Remedy.ELSEWHERE),
        (pod("Failed", reason="Evicted", message="low on memory"), Remedy.RETRY),
        (pod("Failed", reason="OutOfcpu"), Remedy.ELSEWHERE),
        (
            ended(1, conditions=[{"type": "DisruptionTarget", "status": "True"}]),
            Remedy.RETRY,
        ),
        (pod("Failed"), Remedy.RETRY),
    ],
)
def test_a_failure_has_the_class_of_its_reason(found: dict[str, Any], remedy: Remedy):
    assert failure(found).remedy is remedy


def test_the_agents_own_word_says_how_it_ended():
    seen = look(ended(0, message=WORD), 3)

    assert (seen.phase, seen.exit, seen.detail) == (ReplicaPhase.ENDED, ReplicaExit.LEFT, "let go")


def test_the_agents_own_word_says_that_the_node_is_not_to_be_chosen_again():
    word = WORD.replace("}", ', "unfit": "an accelerator of the node failed"}')

    assert look(ended(0, message=word), 3).unfit == "an accelerator of the node failed"
    assert look(ended(0, message=WORD), 3).unfit == ""


def test_without_a_word_success_is_success():
    assert look(ended(0), 0).exit is ReplicaExit.SUCCEEDED


def test_what_may_go_better_another_time_is_gone():
    seen = look(ended(137, reason="OOMKilled"), 0)

    assert (seen.phase, seen.detail) == (ReplicaPhase.GONE, "out of memory on n1")


def test_what_would_fail_again_has_failed():
    assert look(ended(1, message="no such file"), 0).exit is ReplicaExit.FAILED


def test_nothing_is_replaced_whose_template_says_never():
    found = ended(143)
    found["metadata"]["annotations"][RESTART] = "Never"

    assert look(found, 0).exit is ReplicaExit.FAILED


def test_a_pod_that_is_being_deleted_is_not_counted_on():
    found = pod("Running")
    found["metadata"] |= {
        "deletionTimestamp": "2026-11-21T12:00:30Z",
        "deletionGracePeriodSeconds": 30,
    }
    seen = look(found, 0)

    assert (seen.phase, seen.alive, seen.asked_at) == (ReplicaPhase.RUNNING, False, NOW)


def test_one_that_was_asked_to_leave_and_vanished_has_left():
    seen = vanished(look(pod("Running"), 0), NOW, NOW)

    assert (seen.phase, seen.exit) == (ReplicaPhase.ENDED, ReplicaExit.LEFT)


def test_one_that_vanished_otherwise_is_gone():
    assert vanished(look(pod("Running"), 0), None, NOW).phase is ReplicaPhase.GONE


def test_why_a_pod_does_not_start_is_told():
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    found = pod("Pending", containerStatuses=[{"name": "main", "state": {"waiting": waiting}}])

    assert stuck(found) == "container main: ImagePullBackOff: no such image"
    nowhere = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}
    assert unschedulable(pod("Pending", conditions=[nowhere])) == "0/2 nodes are available"


@pytest.mark.parametrize("said", ["noon", "2026-11-21T10:00:00"])
def test_a_time_that_somebody_edited_counts_as_none(said: str):
    found = pod("Running")
    found["metadata"]["annotations"] = {identity.WRITTEN: said}
    assert look(found, 0).started_at == NOW - timedelta(hours=1)
