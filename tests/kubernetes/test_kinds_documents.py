"""An ElasticJob becomes the document that Brain knows, and back."""

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from brain.errors import BadInput, ImpossibleBounds
from brain.types.allocation import Bounds
from brain.types.job import (
    ApprovalPolicy,
    BatchBounds,
    Checkpoint,
    JobDocument,
    OptimizeMode,
    Parallelism,
    PolicyMode,
    Restarts,
    Secret,
)
from brain.types.resources import Resources
from brain.types.roles import RoleSize
from scaler.kubernetes.kinds.documents import (
    LaunchKind,
    elastic_job,
    environment_of,
    job_document,
    launch_of,
    plan_unserved,
    unserved,
)
from scaler.kubernetes.kinds.reading import read_elastic_job, read_scale_plan
from tests.kubernetes.clusters import namespace
from tests.kubernetes.jobs import Object, job, main_of, plan, seed

PLAIN = ("python", "train.py")
RUN = ("torchrun", "--nnodes=1:10", "train.py")


def document(obj: Object) -> JobDocument:
    return job_document(read_elastic_job(obj))


def test_the_articles_job_has_the_bounds_of_its_command_and_begins_with_its_replicas() -> None:
    found = document(seed())
    assert found.replicas == Bounds(min=1, max=10, start=5)
    assert found.resources == Resources(cpu_millis=2000, memory_bytes=3 * 2**30, gpus=1)
    assert (found.project, found.restarts.limit) == (namespace("dlrover"), 10)


BOUNDS: dict[str, tuple[Object, Bounds]] = {
    "equal replicas": (job(*PLAIN, replicas=5), Bounds(min=5, max=5)),
    "from --nnodes": (job(*RUN), Bounds(min=1, max=10)),
    "fields before --nnodes": (
        job(*RUN, minReplicas=2, maxReplicas=4, replicas=3),
        Bounds(min=2, max=4, start=3),
    ),
    "one field, the other from --nnodes": (job(*RUN, minReplicas=3), Bounds(min=3, max=10)),
    "31 of unit 4 run as 28": (job(*PLAIN, replicas=31, unit=4), Bounds(min=28, max=31, unit=4)),
    "the unit of 3D parallelism": (
        job(
            *RUN,
            processesPerReplica=8,
            maxReplicas=31,
            spec={"parallelism": {"tensor": 8, "pipeline": 4}},
        ),
        Bounds(min=4, max=31, unit=4),
    ),
    "a group smaller than a replica has unit 1": (
        job(*RUN, processesPerReplica=8, spec={"parallelism": {"tensor": 4}}),
        Bounds(min=1, max=10),
    ),
    "a minimum between multiples begins above it": (
        job(*RUN, minReplicas=2, maxReplicas=9, unit=4),
        Bounds(min=2, max=9, unit=4, start=4),
    ),
    "a wish above the maximum": (
        job(*PLAIN, replicas=9, minReplicas=1, maxReplicas=4),
        Bounds(min=1, max=4, start=4),
    ),
    "limits of the job cap it": (
        job(*RUN, resources={"cpu": 2}, spec={"resourceLimits": {"cpu": "7"}}),
        Bounds(min=1, max=3),
    ),
    "no replicas: as many as the limits hold": (
        job(*PLAIN, resources={"cpu": 2}, replicas=0, spec={"resourceLimits": {"cpu": "8"}}),
        Bounds(min=1, max=4),
    ),
    "local jobs have one": (
        job(*RUN, replicas=4, spec={"distributionStrategy": "Local"}),
        Bounds(min=1, max=1),
    ),
}


@pytest.mark.parametrize("case", BOUNDS)
def test_bounds_come_from_fields_then_the_command_then_replicas(case: str) -> None:
    obj, expected = BOUNDS[case]
    assert document(obj).replicas == expected


def test_other_roles_are_taken_off_the_limits() -> None:
    obj = job(*RUN, resources={"cpu": 2}, spec={"resourceLimits": {"cpu": "8"}})
    obj["spec"]["replicaSpecs"]["ps"] = obj["spec"]["replicaSpecs"]["worker"] | {"replicas": 2}
    assert document(obj).replicas.max == 2


def test_limits_that_hold_too_few_say_how_many_they_hold() -> None:
    obj = job(*PLAIN, resources={"cpu": 2}, replicas=5, spec={"resourceLimits": {"cpu": "6"}})
    with pytest.raises(
        ImpossibleBounds,
        match=r"\(cpu 6\) allow 3 replicas of worker, but the job needs at least 5",
    ):
        document(obj)


def test_a_unit_that_never_fits_the_replicas_says_which_would() -> None:
    with pytest.raises(ImpossibleBounds, match="no multiple from 3 to 3; raise maxReplicas"):
        document(job(*PLAIN, replicas=3, unit=4))


def test_what_brain_refuses_is_refused_here() -> None:
    obj = job(*PLAIN, replicas=1, spec={"deadline": "2026-12-01T00:00:00Z"})
    with pytest.raises(BadInput, match="declare steps"):
        document(obj)


@pytest.mark.parametrize(
    ("command", "gpus", "processes"),
    [
        (("torchrun", "--nproc_per_node=4", "t.py"), 8, 4),
        (("torchrun", "--nproc-per-node", "gpu", "t.py"), 8, 8),
        (("torchrun", "t.py", "--nproc_per_node=4"), 8, 1),
        (PLAIN, 8, 1),
    ],
)
def test_processes_are_declared_not_read_from_resources(
    command: Sequence[str], gpus: int, processes: int
) -> None:
    obj = job(*command, replicas=1, resources={"nvidia.com/gpu": gpus})
    assert document(obj).processes_per_replica == processes


@pytest.mark.parametrize("field", [{"autoScale": False}, {}])
def test_a_role_that_does_not_scale_by_itself_is_left_to_people(field: Object) -> None:
    obj = job(*RUN, **field)
    expected = OptimizeMode.MANUAL if field else OptimizeMode.SINGLE_JOB
    assert document(obj).optimize_mode is expected


def test_a_pod_reserves_the_sum_of_its_containers_or_its_largest_init() -> None:
    obj = job(*PLAIN, replicas=1, resources={"cpu": "1", "memory": "1Gi"})
    pod = obj["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
    pod["containers"].append(
        {"name": "log", "image": "l", "resources": {"limits": {"cpu": "500m"}}}
    )
    pod["initContainers"] = [
        {"name": "i", "image": "i", "resources": {"requests": {"memory": "4Gi"}}}
    ]
    assert document(obj).resources == Resources(cpu_millis=1500, memory_bytes=4 * 2**30)


COMMANDS: dict[str, tuple[Sequence[str], LaunchKind, tuple[int, int] | None]] = {
    "torchrun": (("torchrun", "--nnodes=3", "t.py"), LaunchKind.TORCHRUN, (3, 3)),
    "the script's own option": (
        ("torchrun", "--standalone", "t.py", "--nnodes=9"),
        LaunchKind.TORCHRUN,
        None,
    ),
    "as a module": (
        ("python3", "-u", "-m", "torch.distributed.run", "--nnodes=2:4", "t.py"),
        LaunchKind.TORCHRUN,
        (2, 4),
    ),
    "the old launcher in a shell": (
        ("sh", "-c", "pip install torchrun && exec python -m torch.distributed.launch t.py"),
        LaunchKind.LAUNCH,
        None,
    ),
    "with a variable that is nowhere": (
        ("bash", "-c", "dlrover-run --nnodes=$NODE_NUM t.py"),
        LaunchKind.TORCHRUN,
        None,
    ),
    "with a variable of the container": (
        ("bash", "-c", "dlrover-run --nnodes=${LEAST}:$MOST t.py"),
        LaunchKind.TORCHRUN,
        (2, 6),
    ),
    "found by which": (
        ("bash", "-lc", "cd /x\nexport A=1; $(which torchrun) --nnodes 1:2 t.py | tee log"),
        LaunchKind.TORCHRUN,
        (1, 2),
    ),
    "a shell in a shell": (
        ("sh", "-c", "bash -c 'torchrun --nnodes=4 t.py'"),
        LaunchKind.TORCHRUN,
        (4, 4),
    ),
    "bound to a processor": (
        ("numactl", "-N", "0", "torchrun", "--nnodes=3", "t.py"),
        LaunchKind.TORCHRUN,
        (3, 3),
    ),
    "plain python after preparing": (
        ("sh", "-c", "python prepare.py; python train.py"),
        LaunchKind.PYTHON,
        None,
    ),
    "a script of the shell": (("bash", "train.sh"), LaunchKind.OPAQUE, None),
    "nothing": ((), LaunchKind.OPAQUE, None),
    "a quote that is never closed": (("sh", "-c", 'torchrun "x'), LaunchKind.TORCHRUN, None),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_a_command_tells_what_it_starts(case: str) -> None:
    command, kind, nodes = COMMANDS[case]
    found = launch_of(command, environment={"LEAST": "2", "MOST": "6"})
    assert (found.kind, found.nodes) == (kind, nodes)


def test_a_variable_of_the_container_fills_in_the_bounds() -> None:
    obj = job("bash", "-c", "dlrover-run --nnodes=$NODE_NUM t.py", replicas=4)
    main_of(obj)["env"] = [{"name": "NODE_NUM", "value": "2:8"}]
    assert document(obj).replicas == Bounds(min=2, max=8, start=4)


def test_a_document_survives_the_way_there_and_back() -> None:
    original = JobDocument(
        name="digits",
        project="team",
        command=("torchrun", "train.py"),
        image="digits:1",
        replicas=Bounds(min=4, max=16, unit=4, start=8),
        processes_per_replica=8,
        resources=Resources(cpu_millis=2500, memory_bytes=2**33, gpus=8),
        accelerator="A100",
        parallelism=Parallelism(tensor=8, pipeline=4),
        batch=BatchBounds(global_size=100_000, local_max=64, local_max_on={"A100": 256}),
        checkpoint=Checkpoint(path="/ckpt", every="5 m"),
        steps=1_000_000,
        restarts=Restarts(limit=3),
        priority=2,
        optimize_mode=OptimizeMode.CLUSTER,
        policy=ApprovalPolicy(mode=PolicyMode.SHADOW),
    )
    assert document(elastic_job(original)) == original


#: Nodes of two types of accelerators, by labels and allocatable amounts.
TYPES = [
    ({"nvidia.com/gpu.product": "A100"}, {"cpu": Decimal(64), "nvidia.com/gpu": Decimal(4)}),
    ({"accelerator": "V100"}, {"tencent.com/vcuda-core": Decimal(800)}),
]


def test_groups_of_a_document_survive_the_way_there_and_back() -> None:
    large = RoleSize(
        replicas=2,
        processes_per_replica=8,
        resources=Resources(cpu_millis=4000, gpus=8),
        accelerator="V100",
    )
    original = JobDocument(
        name="mixed",
        command=("brain-run", "train.py"),
        image="digits:1",
        replicas=Bounds(min=4, max=6),
        processes_per_replica=4,
        resources=Resources(cpu_millis=2000, gpus=4),
        accelerator="A100",
        groups={"large": large},
    )
    made = elastic_job(original, TYPES)
    assert document(made) == original
    worker = made["spec"]["replicaSpecs"]["worker"]
    own, other = (one["template"]["spec"] for one in (worker, worker["groups"]["large"]))
    assert own["nodeSelector"] == {"nvidia.com/gpu.product": "A100"}
    assert own["containers"][0]["resources"]["limits"] == {"cpu": "2000m", "nvidia.com/gpu": "4"}
    assert other["nodeSelector"] == {"accelerator": "V100"}
    limits = {"cpu": "4000m", "tencent.com/vcuda-core": "800"}
    assert other["containers"][0]["resources"]["limits"] == limits


def test_roles_of_a_document_are_groups_of_the_object_and_come_back_as_roles() -> None:
    original = JobDocument(
        name="ads",
        image="ads:1",
        command=("python", "ads.py"),
        replicas=Bounds(min=5, max=8, start=6),
        resources=Resources(cpu_millis=1000, memory_bytes=2**30),
        roles={
            "chief": RoleSize(resources=Resources(cpu_millis=500, memory_bytes=2**30)),
            "ps": RoleSize(replicas=2, resources=Resources(cpu_millis=1000, memory_bytes=2**31)),
        },
    )
    made = read_elastic_job(elastic_job(original))
    assert made.strategy == "ParameterServerStrategy"
    assert not made.configured_here
    assert list(made.spec.replica_specs) == ["worker"]
    again = job_document(made)
    assert (again.roles, again.groups) == (original.roles, {})
    assert again.replicas == original.replicas


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"processesPerReplica": 2}, "roles.ps.processesPerReplica 2 has no effect"),
        (
            {
                "template": {
                    "spec": {
                        "nodeSelector": {"nvidia.com/gpu.product": "V100"},
                        "containers": [{"name": "main", "image": "ads:1"}],
                    }
                }
            },
            "roles.ps.accelerator V100 has no effect",
        ),
    ],
)
def test_a_server_that_differs_in_more_than_amounts_is_refused(
    more: dict[str, Any], says: str
) -> None:
    obj = job("python", "t.py", minReplicas=3, replicas=3, groups={"ps": more})
    with pytest.raises(BadInput, match=says):
        document(obj)


def test_an_accelerator_that_no_node_label_can_name_is_refused() -> None:
    large = RoleSize(replicas=1, processes_per_replica=8, accelerator="no label")
    original = JobDocument(
        name="mixed", image="digits:1", replicas=Bounds(min=2, max=2), groups={"large": large}
    )
    with pytest.raises(BadInput, match="cannot be the value of a node label") as refused:
        elastic_job(original, TYPES)
    assert refused.value.field == "groups.large.accelerator"


def test_a_group_without_fields_of_its_own_has_those_of_its_role() -> None:
    obj = job(*RUN, resources={"cpu": 2}, minReplicas=3, groups={"spare": {"replicas": 2}})
    (group,) = document(obj).groups.values()
    assert group == RoleSize(
        replicas=2, processes_per_replica=1, resources=Resources(cpu_millis=2000)
    )


def test_a_group_may_outgrow_the_least_size_once_its_job_has_begun() -> None:
    obj = job(*RUN, minReplicas=3, groups={"large": {"replicas": 3}})
    with pytest.raises(BadInput, match=r"raise replicas\.min to 4"):
        document(obj)
    begun = {"status": {"request": {"replicas": 3, "groups": {"large": 1}}}}
    assert document(obj | begun).groups["large"].replicas == 2


@pytest.mark.parametrize(
    ("declared", "least", "told"),
    [
        ({"a": 2, "b": 1}, 5, {"a": 2, "b": 1}),
        ({"a": 2, "b": 2}, 5, {"a": 2, "b": 2}),
        ({"a": 3, "b": 2}, 5, {"a": 2, "b": 2}),
        ({"a": 9, "b": 9}, 4, {"a": 2, "b": 1}),
        ({"a": 16384, "b": 1}, 3, {"a": 1, "b": 1}),
    ],
)
def test_a_brain_that_forgot_a_job_begins_with_the_groups_that_its_least_size_has_room_for(
    declared: dict[str, int], least: int, told: dict[str, int]
) -> None:
    groups = {name: {"replicas": count} for name, count in declared.items()}
    obj = job(*RUN, minReplicas=least, maxReplicas=16384, groups=groups)
    begun = {"status": {"request": {"replicas": least, "groups": {}}}}
    found = document(obj | begun).groups
    assert {name: each.replicas for name, each in found.items()} == told


def test_fewer_replicas_than_groups_leave_a_job_that_has_begun_valid() -> None:
    obj = job(*PLAIN, replicas=1, groups={"a": {"replicas": 1}, "b": {"replicas": 2}})
    begun = {"status": {"request": {"replicas": 4, "groups": {"a": 1, "b": 2}}}}
    found = document(obj | begun)
    assert found.replicas == Bounds(min=3, max=3)
    assert [each.replicas for each in found.groups.values()] == [1, 1]
    with pytest.raises(BadInput, match="leave no other replica"):
        document(obj)


def _unlike(field: str, value: object) -> Object:
    obj = job(*RUN, minReplicas=3, groups={"large": {"replicas": 1}})
    at = obj
    *path, last = field.split("/")
    for name in path:
        at = at.setdefault(name, {})
    at[last] = value
    return obj


UNLIKE: dict[str, tuple[Object, str, str]] = {
    "a limit of a resource that Brain does not count": (
        _unlike("spec/resourceLimits", {"ephemeral-storage": "8Gi"}),
        "spec.resourceLimits.ephemeral-storage",
        "limit only cpu, memory and accelerators",
    ),
    "parameter servers": (
        _unlike("spec/distributionStrategy", "ParameterServerStrategy"),
        "spec.replicaSpecs.worker.groups",
        "cannot be combined with ParameterServerStrategy",
    ),
    "the name of the role itself": (
        _unlike("spec/replicaSpecs/worker/groups", {"worker": {}}),
        "spec.replicaSpecs.worker.groups.worker",
        "is not a name for a group",
    ),
    "a pod without containers": (
        _unlike(
            "spec/replicaSpecs/worker/groups/large/template", {"spec": {"containers": []}}
        ),
        "spec.replicaSpecs.worker.groups.large.template.spec.containers",
        "give a container with name and image",
    ),
    "no replica beside them": (
        _unlike("spec/replicaSpecs/worker/minReplicas", 1), "replicas.min",
        "raise replicas.min to 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNLIKE)
def test_groups_that_cannot_be_are_refused_with_field_and_remedy(case: str) -> None:
    obj, field, says = UNLIKE[case]
    with pytest.raises(BadInput, match=re.escape(says)) as refused:
        document(obj)
    assert refused.value.field == field


def test_values_of_the_environment_are_in_a_secret_and_never_come_back() -> None:
    original = JobDocument(
        name="digits",
        command=PLAIN,
        image="digits:1",
        environment={"LR": "0.1", "KEY": Secret(from_secret="keys/wandb")},
    )
    obj = elastic_job(original)
    secret = {"secretKeyRef": {"name": "keys", "key": "wandb"}}
    own = {"secretKeyRef": {"name": "digits-environment", "key": "LR"}}
    assert main_of(obj)["env"] == [
        {"name": "LR", "valueFrom": own},
        {"name": "KEY", "valueFrom": secret},
    ]
    assert environment_of(original) == {"LR": "0.1"}
    assert document(obj).environment == {}


def test_a_directory_is_where_the_container_works() -> None:
    original = JobDocument(name="digits", image="digits:1", directory="/train")
    assert main_of(elastic_job(original))["workingDir"] == "/train"


@pytest.mark.parametrize(
    ("field", "document"),
    [
        ("image", JobDocument(name="digits", command=PLAIN)),
        ("preemptible", JobDocument(name="digits", image="digits:1", preemptible=True)),
    ],
)
def test_a_document_that_no_cluster_can_have_is_refused(field: str, document: JobDocument) -> None:
    with pytest.raises(BadInput) as refused:
        elastic_job(document)
    assert refused.value.field == field


def test_a_value_from_a_file_of_another_machine_is_refused() -> None:
    original = JobDocument(
        name="digits", image="digits:1", environment={"KEY": Secret(from_file="/k")}
    )
    with pytest.raises(BadInput, match="use fromSecret"):
        elastic_job(original)


def test_fields_that_do_nothing_here_are_told() -> None:
    obj = job(*RUN, spec={"brainService": "other:50001", "enableDynamicSharding": True})
    obj["spec"]["replicaSpecs"]["dlrover-master"] = {}
    told = unserved(read_elastic_job(obj), "http://brain:8080")
    assert [sentence.split()[0].rstrip(":") for sentence in told] == [
        "spec.brainService",
        "spec.enableDynamicSharding",
        "spec.replicaSpecs.dlrover-master",
    ]
    assert unserved(read_elastic_job(seed()), "http://brain:8080") == ()


def test_what_a_plan_asks_for_beside_its_size_is_told() -> None:
    worker = {"replicas": 2}
    pods = [{"name": "digits-edljob-worker-0"}]
    whole = {"migratePods": pods, "removePods": pods}
    obj = plan({"ownerJob": "digits", "replicaResourceSpecs": {"worker": worker}} | whole)
    told = plan_unserved(read_scale_plan(obj), "worker")
    assert [sentence.split()[0].rstrip(":") for sentence in told] == [
        "spec.createPods",
        "spec.migratePods",
    ]


def test_a_plan_of_a_size_alone_is_done_whole() -> None:
    obj = plan({"ownerJob": "digits", "replicaResourceSpecs": {"worker": {"replicas": 2}}})
    assert plan_unserved(read_scale_plan(obj), "worker") == ()
