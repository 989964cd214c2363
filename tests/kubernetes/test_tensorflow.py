"""``TF_CONFIG``: what each role is told, and that TensorFlow itself understands it."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from brain.errors import BadInput
from brain.types.roles import Task, tf_config
from scaler.kubernetes.pods.tensorflow import (
    address,
    addresses,
    check,
    restarted,
    service,
    variable,
)

ROLES = {"chief": 1, "worker": 2, "ps": 2, "evaluator": 1}
#: An interpreter that has tensorflow-cpu, where there is one.
PYTHON = os.environ.get("BRAIN_TEST_TENSORFLOW_PYTHON", sys.executable)


def told(task: Task, *, most: int | None = None) -> dict[str, object]:
    read: dict[str, object] = json.loads(variable("ads", "team", ROLES, task, most=most)["value"])
    return read


def test_each_is_told_of_all_but_the_evaluator():
    assert told(Task("worker", 1)) == {
        "cluster": {
            "chief": ["ads-edljob-chief-0.team.svc:3333"],
            "worker": ["ads-edljob-worker-0.team.svc:3333", "ads-edljob-worker-1.team.svc:3333"],
            "ps": ["ads-edljob-ps-0.team.svc:2222", "ads-edljob-ps-1.team.svc:2222"],
        },
        "task": {"type": "worker", "index": 1},
    }


def test_an_evaluator_is_its_own_task_only():
    read = told(Task("evaluator", 0))

    assert read["task"] == {"type": "evaluator", "index": 0}
    assert "evaluator" not in read["cluster"]  # type: ignore[operator]


def test_where_their_number_varies_workers_know_no_other_worker():
    cluster = told(Task("worker", 1), most=4)["cluster"]

    assert cluster["worker"] == {"1": "ads-edljob-worker-1.team.svc:3333"}  # type: ignore[index]


def test_where_their_number_varies_servers_know_all_that_may_come():
    assert len(told(Task("ps", 0), most=4)["cluster"]["worker"]) == 4  # type: ignore[index]
    assert len(told(Task("chief", 0), most=4)["cluster"]["worker"]) == 2  # type: ignore[index]


def test_a_rank_keeps_its_address_whichever_pod_has_it():
    made = service("ads", "uid-1", "team", Task("ps", 1))

    assert made["spec"]["selector"]["elasticjob.dlrover/rank-index"] == "1"
    assert address("ads", "team", Task("ps", 1)).startswith(made["metadata"]["name"])


@pytest.mark.parametrize(
    ("after", "most", "begin_anew"),
    [
        ({"worker": 3}, 4, {"chief"}),
        ({"worker": 3}, None, {"chief", "worker", "ps"}),
        ({"ps": 3}, 4, {"chief", "worker", "ps"}),
        ({}, None, set()),
    ],
    ids=["workers that vary", "workers", "parameter servers", "nothing"],
)
def test_only_who_was_told_otherwise_begins_anew(
    after: Mapping[str, int], most: int | None, begin_anew: set[str]
):
    found = restarted(ROLES, ROLES | dict(after), most=most)

    assert {task.role for task in found} - {"evaluator"} == begin_anew


@pytest.mark.parametrize(
    ("roles", "says"),
    [
        ({"worker": 2}, "replicaSpecs.ps is missing or empty"),
        ({"ps": 1}, "neither worker nor chief"),
        ({"ps": 1, "worker": 1, "chief": 2}, "a job has at most one chief"),
        ({"ps": 1, "boss": 1}, "replicaSpecs.boss is not a role"),
    ],
)
def test_roles_that_cannot_train_are_refused(roles: Mapping[str, int], says: str):
    with pytest.raises(BadInput, match=says):
        check(roles)


def test_a_stranger_is_told_nothing():
    with pytest.raises(BadInput, match="worker 7 is not a member"):
        tf_config(addresses("ads", "team", ROLES), Task("worker", 7))


_PS = """
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
assert (resolver.task_type, resolver.task_id) == ("ps", 0)
server = tf.distribute.Server(
    resolver.cluster_spec(), job_name="ps", task_index=0, protocol="grpc", start=True)
print("ps listens", flush=True)
server.join()
"""
_WORKER = """
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_eager_execution()
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
assert resolver.task_type == "worker"
rank = resolver.task_id
server = tf.distribute.Server(
    resolver.cluster_spec(), job_name="worker", task_index=rank, protocol="grpc", start=True)
with tf1.device("/job:ps/task:0"):
    weight = tf1.get_variable("weight", initializer=1.0)
with tf1.device(f"/job:worker/task:{rank}"):
    loss = tf1.square(weight - 5.0)
step = tf1.train.GradientDescentOptimizer(0.25).minimize(loss, var_list=[weight])
with tf1.Session(server.target) as session:
    session.run(tf1.global_variables_initializer())
    for _ in range(20):
        session.run(step)
    print("weight", rank, round(float(session.run(weight)), 2), weight.device, flush=True)
"""


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for each in held:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in held]
    for each in held:
        each.close()
    return ports


def _has_tensorflow() -> bool:
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tensorflow') is None)"
    return subprocess.run([PYTHON, "-c", look], check=False, timeout=60).returncode == 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("varies", [False, True], ids=["fixed", "varies"])
def test_two_processes_of_tensorflow_train_by_it(tmp_path: Path, varies: bool):
    if not _has_tensorflow():
        pytest.skip("no tensorflow: set BRAIN_TEST_TENSORFLOW_PYTHON to a Python that has it")
    # Where their number varies a worker needs no other: there is none of rank 0.
    ps, worker = Task("ps", 0), Task("worker", 1 if varies else 0)
    ports = _free_ports(3)
    members = {task: f"127.0.0.1:{at}" for task, at in zip((ps, worker), ports, strict=False)}
    absent = {Task("worker", 0): f"127.0.0.1:{ports[2]}"}
    spare = absent if varies else None
    running = []
    for task, script in ((ps, _PS), (worker, _WORKER)):
        path = tmp_path / f"{task.role}.py"
        path.write_text(script)
        config = tf_config(members, task, spare=spare)
        given = os.environ | {"TF_CONFIG": config, "CUDA_VISIBLE_DEVICES": "", "no_proxy": "*"}
        running.append(_started(path, given))
    try:
        said, complaint = running[1].communicate(timeout=240)
    finally:
        for each in running:
            each.kill()
        running[0].communicate()
    assert running[1].returncode == 0, complaint[-2000:]
    assert said.split()[:3] == ["weight", str(worker.rank), "5.0"]
    assert "/job:ps" in said


def _started(script: Path, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [PYTHON, str(script)],
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
