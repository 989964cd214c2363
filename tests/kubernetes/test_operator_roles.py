"""Roles whose size people edit: parameter servers above all, of which every process knows."""

import json
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from brain.types.world import ReplicaExit
from scaler.kubernetes.dependents.roles import Roles, chiefs_end, misled, missing, surplus, unwanted
from scaler.kubernetes.kinds import ElasticJob
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.pods import identity
from scaler.kubernetes.pods.orders import sizes_of, tensorflow_config
from scaler.kubernetes.pods.sight import RESTART
from tests.kubernetes import jobs

Json = dict[str, Any]
ALLREDUCE = "AllreduceStrategy"
NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


def a_job(
    ps: int, chief: int = 0, *, chief_restarts: int | None = None, **worker: int
) -> ElasticJob:
    made = jobs.job("python", "t.py", replicas=2, spec={"distributionStrategy": None})
    roles = made["spec"]["replicaSpecs"]
    roles["worker"] |= worker
    roles["ps"] = {"replicas": ps, "template": roles["worker"]["template"]}
    if chief:
        roles["chief"] = {"replicas": chief, "template": roles["worker"]["template"]}
        if chief_restarts is not None:
            roles["chief"]["restartCount"] = chief_restarts
    made["spec"].pop("distributionStrategy")
    made["metadata"]["uid"] = "u"
    return read_elastic_job(made)


def told(job: ElasticJob, role: str, rank: int) -> Json:
    sizes = sizes_of(job)
    sizes[role] = max(sizes[role], rank + 1)
    value: Json = json.loads(tensorflow_config(job, role, rank, sizes)["TF_CONFIG"]["value"])
    return value


def a_pod(job: ElasticJob, role: str, rank: int, phase: str = "Running") -> Json:
    labels = identity.labels("digits", "u", role, rank, rank=rank, relaunches=0)
    env = [{"name": "TF_CONFIG", "value": json.dumps(told(job, role, rank))}]
    return {
        "metadata": {"namespace": "team", "name": f"{role}-{rank}", "labels": labels},
        "spec": {"containers": [{"name": "main", "env": env}]},
        "status": {"phase": phase},
    }


def test_workers_that_may_come_and_go_are_told_of_no_other_worker():
    job = a_job(1, minReplicas=1, maxReplicas=3)

    assert list(told(job, "worker", 1)["cluster"]["worker"]) == ["1"]
    assert len(told(job, "ps", 0)["cluster"]["worker"]) == 3


def test_workers_of_a_fixed_number_know_each_other():
    assert len(told(a_job(1), "worker", 1)["cluster"]["worker"]) == 2


@pytest.mark.parametrize(("rank", "goes"), [(0, False), (1, True)])
def test_of_fewer_parameter_servers_the_highest_ranks_go(rank: int, goes: bool):
    assert surplus(a_job(1), a_pod(a_job(2), "ps", rank)) is goes


def test_workers_are_never_surplus_here_plans_scale_them():
    assert not surplus(a_job(1), a_pod(a_job(1), "worker", 5))


@pytest.mark.parametrize("role", ["worker", "ps"])
def test_another_number_of_servers_is_news_to_every_process(role: str):
    assert misled(a_job(2), a_pod(a_job(1), role, 0), 2)
    assert not misled(a_job(2), a_pod(a_job(2), role, 0), 2)


def test_another_number_of_workers_is_news_to_nobody():
    before = a_job(1, minReplicas=1, maxReplicas=3)
    after = a_job(1, minReplicas=1, maxReplicas=3, replicas=3)

    assert not any(misled(after, a_pod(before, role, 0), 3) for role in ("worker", "ps"))


def a_chief(phase: str, **status: Any) -> Json:
    labels = identity.labels("digits", "u", "chief", 0, rank=0, relaunches=0)
    metadata = {"namespace": "team", "name": "chief-0", "labels": labels}
    return {"metadata": metadata, "spec": {}, "status": {"phase": phase, **status}}


def ended(code: int) -> Json:
    at = {
        "exitCode": code,
        "startedAt": "2026-11-26T11:00:00Z",
        "finishedAt": "2026-11-26T12:00:00Z",
    }
    return {"containerStatuses": [{"name": "main", "state": {"terminated": at}}]}


@pytest.mark.parametrize(
    ("chief", "policy", "exit"),
    [
        (a_chief("Running"), "Always", None),
        (a_chief("Succeeded", **ended(0)), "Always", ReplicaExit.SUCCEEDED),
        (a_chief("Failed", **ended(137)), "Always", None),
        (a_chief("Failed", **ended(137)), "Never", ReplicaExit.FAILED),
        (a_chief("Failed", **ended(1)), "Always", ReplicaExit.FAILED),
    ],
)
def test_a_chief_that_ends_for_good_ends_its_job(
    chief: Json, policy: str, exit: ReplicaExit | None
):
    chief["metadata"]["annotations"] = {RESTART: policy}
    others = [a_pod(a_job(1), role, 0) for role in ("worker", "ps")]
    ending = chiefs_end(a_job(1, 1), [*others, chief], 2)
    assert (ending and ending.exit) == exit


@pytest.mark.parametrize(("phase", "code"), [("Succeeded", 0), ("Failed", 1)])
def test_a_chief_that_coordinates_no_servers_ends_no_job(phase: str, code: int):
    made = jobs.job("python", "t.py", replicas=2, spec={"distributionStrategy": ALLREDUCE})
    roles = made["spec"]["replicaSpecs"]
    roles["chief"] = {"replicas": 1, "template": roles["worker"]["template"]}

    assert chiefs_end(read_elastic_job(made), [a_chief(phase, **ended(code))], 2) is None


@pytest.mark.parametrize(
    ("code", "relaunches", "exit"),
    [
        (139, 1, None),
        (139, 2, ReplicaExit.FAILED),
        (201, 2, ReplicaExit.FAILED),
        (137, 2, None),  # somebody killed it
    ],
)
def test_a_chief_that_crashes_too_often_ends_its_job(
    code: int, relaunches: int, exit: ReplicaExit | None
):
    job, chief = a_job(1, 1, chief_restarts=2), a_chief("Failed", **ended(code))
    chief["metadata"]["labels"][identity.RELAUNCHES] = str(relaunches)
    server = a_pod(job, "ps", 0)

    ending = chiefs_end(job, [server, chief], 2)
    successors = list(missing(job, "chief", [chief], 2, NOW))

    assert (ending and ending.exit) == exit
    assert len(successors) == (exit is None), "either another chief comes, or the job ends"
    if ending is not None:
        assert "more than restartCount 2" in ending.detail


@pytest.mark.parametrize(
    ("lost", "restarts", "ends"),
    [
        ("nothing", 2, True),
        ("vanished", 2, False),
        ("evicted", 2, False),
        ("leaving", 2, False),
        ("replaced", 2, False),
        ("replaced", 0, True),
        ("replaced", None, False),
        ("its own fault", 2, True),
    ],
)
def test_a_chief_that_lost_a_server_is_replaced_within_its_limit(
    lost: str, restarts: int | None, ends: bool
):
    job = a_job(1, 1, chief_restarts=restarts)
    chief, server = a_chief("Failed", **ended(1)), a_server(job, "10:59")
    servers = {
        "nothing": [server],
        "vanished": [],
        "evicted": [server | {"status": {"phase": "Failed", "reason": "Evicted"}}],
        "leaving": [leaving(a_server(job, "10:59"))],
        "replaced": [a_server(job, "12:01")],
        "its own fault": [server | {"status": {"phase": "Failed", **ended(1)}}],
    }
    pods = [*servers[lost], chief]

    ending = chiefs_end(job, pods, 2)
    successors = list(missing(job, "chief", pods, 2, NOW))

    assert (ending is not None, len(successors)) == (ends, 0 if ends else 1)


def a_server(job: ElasticJob, created: str) -> Json:
    pod = a_pod(job, "ps", 0)
    pod["metadata"]["creationTimestamp"] = f"2026-11-26T{created}:00Z"
    return pod


def test_a_chief_that_crashed_has_one_relaunch_more():
    job, chief = a_job(1, 1, chief_restarts=2), a_chief("Failed", **ended(139))
    (successor,) = missing(job, "chief", [chief], 2, NOW)
    assert successor["metadata"]["labels"][identity.RELAUNCHES] == "1"  # type: ignore[index]


def test_a_chief_that_is_asked_to_end_does_not_end_its_job():
    chief = a_chief("Succeeded", **ended(0))
    chief["metadata"] |= {
        "deletionTimestamp": "2026-11-26T12:00:30Z",
        "deletionGracePeriodSeconds": 60,
    }
    assert chiefs_end(a_job(1), [chief], 2) is None


def test_another_number_of_workers_is_news_to_a_chief_that_coordinates_them():
    job = a_job(1, 1, minReplicas=1, maxReplicas=3)
    assert not misled(job, a_pod(job, "chief", 0), 2)
    assert misled(job, a_pod(job, "chief", 0), 3)
    # A job that stops has no size to tell.
    assert not misled(job, a_pod(job, "chief", 0), 0)


def test_what_is_over_is_not_replaced_for_it():
    assert not misled(a_job(2), a_pod(a_job(1), "ps", 0, "Failed"), 2)


@pytest.mark.parametrize(
    ("worker", "ended_pods"),
    [
        ("Running", ["chief-0"]),  # it may still write a checkpoint with its server
        ("Succeeded", ["chief-0", "ps-0"]),
        (None, ["chief-0", "ps-0"]),
    ],
)
def test_a_job_that_stops_ends_its_servers_after_its_workers(
    worker: str | None, ended_pods: list[str]
):
    job = a_job(1, 1)
    pods = [a_chief("Failed", **ended(1)), a_pod(job, "ps", 0)]
    if worker:
        pods.append(leaving(a_pod(job, "worker", 0, worker)))

    assert [pod["metadata"]["name"] for pod in unwanted(job, pods)] == ended_pods


def test_what_is_asked_to_end_is_not_asked_again():
    assert not list(unwanted(a_job(1), [leaving(a_pod(a_job(1), "ps", 0))]))


def test_a_chief_that_fails_while_its_workers_leave_does_not_end_its_job():
    job = a_job(1, 1)
    pods = [a_chief("Failed", **ended(1)), leaving(a_pod(job, "worker", 0))]

    assert chiefs_end(job, pods, 0) is None
    assert chiefs_end(job, [a_chief("Succeeded", **ended(0)), *pods[1:]], 0) is not None


def test_a_job_gets_its_servers_with_its_workers_and_loses_them_with_these():
    job, stand = a_job(1, 1), Stand()

    stand.roles.keep(job, 0, NOW)
    assert not stand.names(), "a job that waits has no pod"
    stand.roles.keep(job, 2, NOW)
    assert stand.names() == ["chief", "ps"]

    stand.pods[0]["status"] = {"phase": "Failed", **ended(1)}  # its workers left
    stand.roles.keep(job, 0, NOW)
    assert not stand.names()
    stand.roles.keep(job, 2, NOW)
    assert stand.names() == ["chief", "ps"], "a resume begins afresh"


def leaving(pod: Json) -> Json:
    pod["metadata"]["deletionTimestamp"] = "2026-11-26T12:00:30Z"
    return pod


class Stand:
    """Pods of one job, as the operator's store has them, and what ``Roles`` makes of them."""

    def __init__(self) -> None:
        self.pods: list[Json] = []
        self.roles = Roles(cast(Any, self), cast(Any, self))

    def index(self, name: str, keys: object) -> None: ...

    def by(self, name: str, key: str) -> list[Json]:
        return list(self.pods)

    def create(self, pod: Json) -> None:
        self.pods.append(pod)

    def replace(self, pod: Json) -> None:
        self.pods.remove(pod)

    def names(self) -> list[str]:
        found = (identity.replica_of(pod) for pod in self.pods)
        return sorted(one[0] for one in found if one)
