"""Operators whose clock is ten minutes off."""

import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from brain.types.job import Intent, JobId, JobState
from scaler.kubernetes.pods.identity import INDEX
from scaler.kubernetes.runtime.cluster import POD
from scaler.kubernetes.runtime.pace import SystemClock
from tests.kubernetes import jobs
from tests.kubernetes.clusters import here
from tests.kubernetes.operating import (
    Place,
    Stage,
    accepted,
    living,
    operating,
    placed,
    retire,
    until,
)

AHEAD, BEHIND = 600.0, -600.0


class WrongClock(SystemClock):
    """This machine's clocks; the time of day is set wrong by some seconds."""

    def __init__(self, seconds: float) -> None:
        self._wrong = timedelta(seconds=seconds)

    def now(self) -> datetime:
        return super().now() + self._wrong


def every_index(place: Place) -> set[str]:
    """The indexes of all pods that were ever made and are still there, ended or not."""
    found = place.cluster.list(POD, place.namespace).items
    return {pod["metadata"]["labels"][INDEX] for pod in found}


def runs(place: Place, spec: dict[str, Any] | None = None, **worker: Any) -> dict[str, Any]:
    """A job of two replicas that run."""
    worker = {"replicas": 2, "minReplicas": 1, "maxReplicas": 2} | worker
    made = accepted(place, **worker)
    if spec:
        place.apply({**made, "metadata": {"name": "digits"}, "spec": made["spec"] | spec})
    until("two run", lambda: place.run() == {"0", "1"}, place.pods)
    return made


@pytest.mark.parametrize("seconds", [AHEAD, BEHIND])
def test_a_replacement_that_is_not_ready_yet_is_not_replaced(
    stage: Stage, tmp_path: Path, seconds: float
) -> None:
    clock = WrongClock(seconds)
    with operating(stage.ground, tmp_path, clock=clock) as place, living(place):
        runs(place, restartTimeout=300)
        stage.kubelet.hold()
        try:
            name = place.pods()["1"]["metadata"]["name"]
            stage.kubelet.kill_for_memory(name, namespace=place.namespace)
            until("another one is made", lambda: "2" in every_index(place))
            time.sleep(3.0)  # the operator looks at a pod that may be late every second
        finally:
            stage.kubelet.hold(False)
        until("the replacement runs", lambda: place.run() == {"0", "2"}, place.pods)

        assert every_index(place) == {"0", "1", "2"}


def test_a_node_that_was_silent_for_a_moment_at_the_operators_start_is_not_lost(
    stage: Stage, tmp_path: Path
) -> None:
    with operating(stage.ground, tmp_path) as place:
        with living(place):
            made = runs(place)
            node = place.pods()["1"]["spec"]["nodeName"]
        stage.kubelet.lose_node(node)
        next_operator = placed(stage.ground, place.api, place.namespace, WrongClock(AHEAD))
        try:
            backend = next_operator.operator.backend
            until("its stores are read", next_operator.operator.manager.synced)
            seen = backend.observe(JobId(made["metadata"]["uid"]), next_operator.operator.now())
        finally:
            retire(next_operator)
            stage.kubelet.find_node(node)

        assert [one.alive for one in seen.replicas] == [True, True]


def nowhere(patience: int) -> dict[str, Any]:
    """A job that fits no node, and waits for one."""
    made = jobs.job("torchrun", "t.py", resources={"cpu": "1"}, replicas=2, minReplicas=2)
    template = made["spec"]["replicaSpecs"]["worker"]["template"]
    template["spec"] |= here({"nodeSelector": {"pool": "a100"}})
    made["spec"]["gangPatience"] = patience
    return made


def test_an_operator_that_is_behind_waits_for_nodes_no_longer_than_a_job_says(
    stage: Stage, tmp_path: Path
) -> None:
    clock = WrongClock(BEHIND)
    with operating(stage.ground, tmp_path, clock=clock) as place, living(place):
        place.says(place.apply(nowhere(1)), "Feasible", "False", "NeverFits")


def test_an_operator_that_is_ahead_waits_for_nodes_as_long_as_a_job_says(
    stage: Stage, tmp_path: Path
) -> None:
    clock = WrongClock(AHEAD)
    with operating(stage.ground, tmp_path, clock=clock) as place, living(place):
        made = place.apply(nowhere(300))
        place.says(made, "Feasible", "Unknown", "WaitingForNodes")
        time.sleep(1.0)  # the placeholder pods have come back from the API server

        place.look()
        assert (place.condition(made, "Feasible") or ("",))[0] == "Unknown"


@pytest.mark.parametrize(("seconds", "brain"), [(AHEAD, 0.0), (0.0, BEHIND)])
def test_a_job_is_active_for_as_long_as_it_may_be(
    stage: Stage, tmp_path: Path, seconds: float, brain: float
) -> None:
    clock = WrongClock(seconds)
    with (
        operating(stage.ground, tmp_path, clock=clock) as place,
        living(place, timedelta(seconds=brain)),
    ):
        made = runs(place, {"activeDeadlineSeconds": 300})
        until("its start is told", lambda: place.status(made).get("startTime"))
        time.sleep(1.0)  # the operator has read the start back

        assert place.job(made).job.intent is Intent.RUN


def test_an_end_that_was_due_is_told_though_brains_clock_is_behind(
    stage: Stage, tmp_path: Path
) -> None:
    with (
        operating(stage.ground, tmp_path) as place,
        living(place, timedelta(seconds=BEHIND)),
    ):
        made = runs(place, {"activeDeadlineSeconds": 1})

        place.says(made, "Failed", "True", "DeadlineExceeded")


def test_a_finished_job_stays_for_its_time_though_brains_clock_is_behind(
    stage: Stage, tmp_path: Path
) -> None:
    with operating(stage.ground, tmp_path) as place:
        place.api.now += timedelta(seconds=BEHIND)
        made = accepted(place)
        spec = made["spec"] | {"ttlSecondsAfterFinished": 300}
        place.apply({**made, "metadata": {"name": "digits"}, "spec": spec})
        with place.api.stores.transaction() as tx:
            job = tx.jobs.get(made["metadata"]["uid"])
            tx.jobs.put(job.moved(JobState.SUCCEEDED, "", place.api.now))
        place.look()
        place.says(made, "Complete", "True", "Succeeded")
        time.sleep(1.0)  # the operator has read the end back

        assert place.status(made)["phase"] == "Succeeded"


def test_pods_wait_for_a_restart_though_brains_clock_is_behind(
    stage: Stage, tmp_path: Path
) -> None:
    with (
        operating(stage.ground, tmp_path) as place,
        living(place, timedelta(seconds=BEHIND)),
    ):
        place.operator.jobs.resizing.offered = False
        made = runs(place)
        more = {"worker": {"resource": {"cpu": "2"}}}
        place.apply(jobs.plan({"ownerJob": "digits", "replicaResourceSpecs": more}))
        place.says(made, "Reserved", "False", "WaitsForRestart", "at their next restart")
        time.sleep(1.0)  # the operator has looked again

        assert every_index(place) == {"0", "1"}
