"""Pods, nodes and what they use become readings of jobs, by when they were there."""

import pytest

from brain.errors import BadInput
from brain.types.resources import PoolName
from brain.types.world import ReplicaExit, ReplicaState
from collectors.pods import reports
from collectors.pods.dcgm import DevicesByPod, devices, shared
from collectors.pods.identity import KEEP, ClusterJobs, Stays, looked
from collectors.pods.quantities import quantity, whole
from collectors.pods.readings import Samples, readings
from collectors.pods.sights import node as node_sight
from collectors.pods.sights import requests
from collectors.pods.usage import of_metrics_server, of_summary
from tests.collectors.clustered import (
    JOB,
    at,
    job,
    jobs,
    metered,
    node,
    pod,
    seen,
    series,
    stamp,
    vector,
)

NODES = {"n0": node_sight(node(gpus=2))}
NOTHING = DevicesByPod(of={}, unknown={})
MIB = 1 << 20


def stays(*pods: dict[str, object], known: ClusterJobs | None = None, seconds: float = 20) -> Stays:
    return looked(Stays(), [seen_of(each) for each in pods], known or jobs(), at(seconds))


def seen_of(obj: dict[str, object]):
    from collectors.pods.sights import pod as read

    return read(obj)


def used(*pods: str, seconds: float = 20):
    return of_metrics_server(
        {"items": [metered("n0", seconds=seconds, cpu="3", memory="8Gi")]},
        {
            "items": [
                metered(name, seconds=seconds, cpu="500m", memory="1Gi", namespace="team")
                for name in pods
            ]
        },
    )


# Whose a pod is.


def test_a_pod_is_of_the_job_that_controls_it():
    owner = {"kind": "ElasticJob", "name": "anything", "uid": JOB, "controller": True}

    found = stays(pod("odd-name", owner=owner))

    assert found.all["pod-0"].job == JOB


@pytest.mark.parametrize(
    "given",
    [
        {"name": "x", "labels": {"elastic.iml.github.io/job-uid": JOB}},
        {"name": "x", "labels": {"elasticjob.dlrover/name": "digits"}},
        {"name": "digits-edljob-worker-7"},
        {"name": "digits-worker-0"},
        {"name": "x", "labels": {"jobset.sigs.k8s.io/jobset-name": "digits"}},
        {"name": "x", "owner": {"kind": "elasticjob", "name": "digits", "uid": "gone"}},
    ],
    ids=["uid label", "name label", "DLRover's", "Kubeflow's", "JobSet's", "owner by name"],
)
def test_a_pod_is_known_by_what_there_is(given: dict[str, object]):
    assert stays(pod(**given)).all["pod-0"].job == JOB  # type: ignore[arg-type]


def test_a_name_means_the_job_that_was_there_when_the_pod_was_made():
    first, second = job("first", born=0, ended=100), job("second", born=200)

    found = stays(
        pod("digits-worker-0", "a", born=50),
        pod("digits-worker-0", "b", born=250),
        pod("digits-worker-0", "c", born=150),
        known=ClusterJobs((first, second)),
        seconds=300,
    )

    assert [found.all[uid].job for uid in "abc"] == ["first", "second", None]


def test_a_pod_stays_of_its_job_after_the_jobs_object_is_gone():
    before = stays(pod())

    after = looked(before, [seen()], ClusterJobs(()), at(30))

    assert after.all["pod-0"].job == JOB


def test_what_is_read_late_is_of_the_pod_that_had_the_name_then():
    before = stays(pod("digits-worker-0", "old", born=10))

    after = looked(before, [seen("digits-worker-0", "new", born=60)], jobs(), at(65))

    assert after.named["team", "digits-worker-0"]
    assert [after.at("team", "digits-worker-0", at(s)).pod.uid for s in (30, 59, 61)] == [  # type: ignore[union-attr]
        "old",
        "old",
        "new",
    ]


def test_stays_that_ended_long_ago_are_forgotten():
    before = looked(stays(pod()), [], jobs(), at(30))

    assert looked(before, [], jobs(), at(31) + KEEP).all == {}


# What a pod or node says.


def test_requests_are_what_the_scheduler_reserves():
    spec = {
        "containers": [
            {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "4", "nvidia.com/gpu": 2}}},
            {"resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}},
        ],
        "initContainers": [
            {"restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
            {"resources": {"requests": {"memory": "3Gi"}}},
        ],
        "overhead": {"cpu": "50m"},
    }

    found = requests(spec)

    assert (found.cpu_millis, found.memory_bytes, found.gpus) == (1650, 3 << 30, 2)


def test_hundredths_of_a_device_are_devices():
    limits = {"tencent.com/vcuda-core": "150"}

    assert requests({"containers": [{"resources": {"limits": limits}}]}).gpus == 2


@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        (
            {
                "containerStatuses": [
                    {
                        "name": "main",
                        "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                    }
                ]
            },
            "OOMKilled",
            137,
        ),
        ({"reason": "Evicted", "message": "low on memory"}, "Evicted", None),
        (
            {
                "conditions": [
                    {
                        "type": "DisruptionTarget",
                        "status": "True",
                        "reason": "PreemptionByScheduler",
                    }
                ],
                "containerStatuses": [
                    {"name": "main", "state": {"terminated": {"exitCode": 143, "reason": "Error"}}}
                ],
            },
            "Preempted",
            143,
        ),
        ({}, "Error", None),
    ],
    ids=["memory", "eviction", "preemption", "nothing said"],
)
def test_how_a_pod_ended_has_a_reason(status: dict[str, object], reason: str, code: int | None):
    end = seen(phase="Failed", status=status).end

    assert end is not None
    assert (end.reason, end.code, end.succeeded) == (reason, code, False)


def test_a_pod_that_does_not_fit_says_so():
    unfit = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3"}

    assert seen(phase="Pending", status={"conditions": [unfit]}).waiting == "Unschedulable: 0/3"


def test_an_odd_quantity_is_named():
    with pytest.raises(BadInput, match="memory '3 gigs' is not a quantity"):
        whole("3 gigs")


def test_quantities_have_every_suffix():
    texts = ("1n", "1u", "1m", "1", "1k", "1M", "1Ki", "1Gi", "1e3", "1E")
    values = [float(quantity(text)) for text in texts]

    assert values == [1e-9, 1e-6, 1e-3, 1, 1e3, 1e6, 1024, 2**30, 1e3, 1e18]


# What is used.


def test_the_pods_of_a_job_on_a_node_are_added_up():
    two = stays(pod(), pod("digits-edljob-worker-1", "pod-1"), pod("other", "pod-2"))

    made = readings(
        used("digits-edljob-worker-0", "digits-edljob-worker-1", "other"), NOTHING, two, NODES
    )

    assert [(each.job, each.cpu_millis, each.memory_bytes) for each in made] == [
        (JOB, 1000, 2 << 30)
    ]


def test_a_pod_with_an_agent_of_ours_measures_itself():
    agent = {"containers": [{"name": "main", "env": [{"name": "BRAIN_POD", "value": "{}"}]}]}

    assert not readings(used("digits-edljob-worker-0"), NOTHING, stays(pod(spec=agent)), NODES)


def test_a_reading_that_came_before_makes_no_second_sample():
    samples = Samples()
    first = readings(used("digits-edljob-worker-0"), NOTHING, stays(pod()), NODES)
    later = readings(used("digits-edljob-worker-0", seconds=35), NOTHING, stays(pod()), NODES)

    made = [samples.of(each) for each in (first, first, later)]

    assert [len(each) for each in made] == [1, 0, 1]
    assert made[0][0].source == made[2][0].source


def test_kubelets_count_traffic_and_know_uids():
    def summary(seconds: float, received: int):
        cpu, memory = {"time": stamp(seconds), "usageNanoCores": 2e9}, {"workingSetBytes": 1 << 30}
        network = {"rxBytes": received, "txBytes": 0}
        whole = {"cpu": cpu, "memory": memory, "network": network}
        ref = {"name": "digits-edljob-worker-0", "namespace": "team", "uid": "pod-0"}
        return [{"node": {"nodeName": "n0"} | whole, "pods": [{"podRef": ref} | whole]}]

    samples = Samples()
    for seconds, received in ((20, 1000), (30, 6000)):
        made = samples.of(
            readings(of_summary(summary(seconds, received)), NOTHING, stays(pod()), NODES)
        )

    assert (made[0].job_cpu_millis, made[0].network_receive_bytes_per_second) == (2000, 500.0)


# Whose devices are.

_PLACES = {"n0": "n0", "10.0.0.9": "n0"}


def gpu(index: int, **labels: str):
    place = {"gpu": str(index), "UUID": f"GPU-{index}", "modelName": "A100", "Hostname": "n0"}
    values = (
        ("DCGM_FI_DEV_GPU_UTIL", "80"),
        ("DCGM_FI_DEV_FB_USED", "1000"),
        ("DCGM_FI_DEV_FB_FREE", "3000"),
        ("DCGM_FI_DEV_GPU_TEMP", "9223372036854775794"),
    )
    return [series(metric, value, **(place | labels)) for metric, value in values]


def test_units_are_ours_and_blanks_are_none():
    reading = devices(vector(*gpu(0)), _PLACES)[0].reading

    assert (reading.utilization, reading.temperature_celsius) == (0.8, None)
    assert (reading.memory_used_bytes, reading.memory_total_bytes) == (1000 * MIB, 4000 * MIB)


@pytest.mark.parametrize(
    "labels",
    [
        {"pod": "digits-edljob-worker-0", "namespace": "team"},
        {
            "pod": "dcgm-exporter-x",
            "namespace": "gpu",
            "exported_pod": "digits-edljob-worker-0",
            "exported_namespace": "team",
        },
    ],
    ids=["labels kept", "labels renamed"],
)
def test_a_device_is_of_the_pod_that_the_exporter_names(labels: dict[str, str]):
    found = shared(devices(vector(*gpu(0, **labels)), _PLACES), stays(pod()))

    assert [reading.index for reading in found.of["pod-0"]] == [0]


def test_a_device_of_an_exporter_behind_an_address_is_of_its_node():
    labels = {"Hostname": "dcgm-exporter-x", "instance": "10.0.0.9:9400"}

    assert devices(vector(*gpu(0, **labels)), _PLACES)[0].node == "n0"


def test_without_labels_devices_are_of_the_pod_that_has_them_all():
    both = devices(vector(*gpu(0), *gpu(1)), _PLACES)

    found = shared(both, stays(pod(requests={"nvidia.com/gpu": "2"})))

    assert len(found.of["pod-0"]) == 2


def test_without_labels_nothing_is_guessed_among_several():
    both = devices(vector(*gpu(0), *gpu(1)), _PLACES)
    two = stays(
        pod(requests={"nvidia.com/gpu": "1"}),
        pod("digits-edljob-worker-1", "pod-1", requests={"nvidia.com/gpu": "1"}),
    )

    found = shared(both, two)
    made = readings(used("digits-edljob-worker-0"), found, two, NODES)

    assert found.of == {}
    assert "DCGM_EXPORTER_KUBERNETES=true" in made[0].unavailable[0]


def test_a_pair_of_prometheus_is_one_device_of_the_later():
    place = {"UUID": "GPU-0", "Hostname": "n0"}
    older = series("DCGM_FI_DEV_GPU_UTIL", "10", seconds=10, replica="a", **place)
    newer = series("DCGM_FI_DEV_GPU_UTIL", "90", seconds=20, replica="b", **place)

    for order in ((older, newer), (newer, older)):
        found = devices(vector(*order), _PLACES)
        assert [(each.reading.utilization, each.at) for each in found] == [(0.9, at(20))]


def test_an_instance_of_a_device_is_as_busy_as_its_engine():
    labels = {"GPU_I_ID": "3"}
    engine = series("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "0.25", UUID="GPU-0", Hostname="n0", **labels)

    found = devices(vector(*gpu(0, **labels), engine), _PLACES)

    assert found[0].reading.utilization == 0.25


# What Brain is told.


def test_replicas_of_dlrovers_own_jobs_are_told_with_how_they_ended():
    killed = {"name": "main", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    found = stays(
        pod(),
        pod(
            "digits-edljob-worker-1",
            "pod-1",
            phase="Failed",
            status={"containerStatuses": [killed]},
        ),
        pod("digits-edljob-ps-0", "pod-2", phase="Failed", status={"reason": "Evicted"}),
    )

    report = reports.reports(found, [JOB], at(20))[0]  # type: ignore[list-item]

    assert [(r.role, r.id, r.state, r.exit, r.exit_code) for r in report.replicas] == [
        ("ps", 0, ReplicaState.EXITED, ReplicaExit.LOST, None),
        ("worker", 0, ReplicaState.RUNNING, None, None),
        ("worker", 1, ReplicaState.EXITED, ReplicaExit.FAILED, 137),
    ]
    assert report.replicas[2].detail == "OOMKilled: container main exited with code 137 (OOMKilled)"


def test_pods_with_a_scaler_are_its_to_tell():
    ours = pod(labels={"app.kubernetes.io/managed-by": "brain-scaler"})

    assert reports.reports(stays(ours), [JOB], at(20)) == []  # type: ignore[list-item]


def test_nodes_are_registered_with_what_pods_may_have():
    made = reports.nodes([NODES["n0"]], PoolName("gpu"), at(0))

    assert (made[0].name, made[0].accelerator, made[0].capacity.gpus) == ("n0", "A100", 2)
