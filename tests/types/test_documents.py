"""What a person may write in a job document, and what is refused with which words."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from brain import calls, wire
from brain.errors import BadInput, ImpossibleBounds
from brain.types.allocation import Allocation, Bounds
from brain.types.job import BatchBounds, Budget, JobDocument, Parallelism, Secret
from brain.types.resources import Resources
from tests.builders import NOW, document


@pytest.mark.parametrize(
    ("bounds", "field", "said"),
    [
        (Bounds(min=3, max=2), "replicas.min", "raise max or lower min"),
        (Bounds(min=0, max=2), "replicas", "must both be at least 1"),
        (Bounds(min=1, max=2, unit=0), "replicas", "must both be at least 1"),
        (Bounds(min=5, max=7, unit=4), "replicas.unit", "raise max to 8"),
        (Bounds(min=3, max=8, unit=4), "replicas.min", "set min to 4"),
        (Bounds(min=2, max=8, unit=2, start=3), "replicas.start", "not a multiple of 2"),
        (Bounds(min=2, max=4, start=8), "replicas.start", "from 2 to 4"),
        (Bounds(min=1, max=10**12), "replicas.max", "is more than 16384; lower it"),
    ],
)
def test_bounds_that_no_size_satisfies_are_refused_with_the_remedy(
    bounds: Bounds, field: str, said: str
):
    with pytest.raises(ImpossibleBounds, match=said) as refused:
        document(replicas=bounds).check()

    assert refused.value.field == field


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"command": ()}, "command"),
        ({"command": ("", "train.py")}, "command"),
        ({"processes_per_replica": 0}, "processesPerReplica"),
        ({"command": ("a\0b",)}, "command"),
        ({"environment": {"KEY": Secret()}}, "environment.KEY"),
        ({"environment": {"KEY": "a\0b"}}, "environment.KEY"),
        ({"environment": {"A=B": "1"}}, "environment.A=B"),
        ({"environment": {"": "1"}}, "environment."),
        ({"budget": Budget(cost=0), "steps": 9}, "budget.cost"),
        ({"budget": Budget(accelerator_hours=math.nan), "steps": 9}, "budget.acceleratorHours"),
        ({"budget": Budget(accelerator_hours=4)}, "budget.acceleratorHours"),
        ({"deadline": NOW.replace(tzinfo=None), "steps": 9}, "deadline"),
        ({"deadline": NOW}, "deadline"),
        ({"parallelism": Parallelism(tensor=0)}, "parallelism.tensor"),
        ({"batch": BatchBounds(local_min=8, local_max=4)}, "batch.localMin"),
        ({"batch": BatchBounds(local_min=8, local_max_on={"T4": 4})}, "batch.localMin"),
        ({"batch": BatchBounds(local_max_on={"T4": 0})}, "batch.localMaxOn.T4"),
        ({"batch": BatchBounds(global_size=64, global_max=32)}, "batch.globalSize"),
        ({"steps": 0}, "steps"),
        ({"resources": Resources(cpu_millis=-5)}, "resources.cpuMillis"),
        ({"resources": Resources(gpus=-1)}, "resources.gpus"),
        ({"batch": BatchBounds(tune=True), "parallelism": Parallelism(tensor=2)}, "batch.tune"),
    ],
)
def test_what_can_never_run_is_refused_by_the_name_of_its_field(fields: dict[str, Any], field: str):
    with pytest.raises(BadInput) as refused:
        document(**fields).check()

    assert refused.value.field == field


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"optimizeMode": "pool"},
            "optimizeMode 'pool' is not a known value; choose one of manual, single-job, cluster",
        ),
        (
            {"policy": {"mode": "aut"}},
            "policy.mode 'aut' is not a known value; choose one of off, shadow, approve, auto",
        ),
        (
            {"deadline": "soon"},
            "deadline 'soon' is not a date and a time; write 2026-12-01T18:00:00Z, for example",
        ),
    ],
)
def test_a_value_that_does_not_exist_is_refused_with_those_that_do(
    fields: dict[str, Any], says: str
):
    with pytest.raises(BadInput) as refused:
        wire.job_document({"name": "a", "command": ["python", "train.py"], **fields})
    assert str(refused.value) == says
    assert refused.value.field == says.split()[0]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"priority": 5000},
            "priority 5000 must be from -8 to 8; each step multiplies the job's weight by 4",
        ),
        (
            {"restarts": {"limit": -1}},
            "restarts.limit -1 must be 0 or more; 0 ends the job at its first failure",
        ),
        (
            {"checkpoint": {"path": ""}},
            "checkpoint.path '' names no file; give the file or directory that the script saves "
            "to, or leave it out, and Brain detects it",
        ),
    ],
)
def test_a_value_that_means_nothing_is_refused_at_the_door_and_still_read(
    fields: dict[str, Any], says: str
):
    written = {"name": "a", "command": ["python", "train.py"], **fields}
    with pytest.raises(BadInput) as refused:
        wire.job_document(written)
    assert str(refused.value) == says
    assert refused.value.field == says.split()[0]
    wire.document(written, JobDocument).check()


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_json_lacks_is_refused_before_it_is_sent(number: float):
    written = {"name": "a", "command": ["x"], "budget": {"cost": number}}
    with pytest.raises(BadInput, match=rf"budget\.cost {number} is not a finite number"):
        calls.submit(written)


@pytest.mark.parametrize(
    ("bounds", "sizes"),
    [
        (Bounds(min=1, max=4), [1, 2, 3, 4]),
        (Bounds(min=2, max=9, unit=4), [4, 8]),
        (Bounds(min=5, max=6, unit=4), []),
    ],
)
def test_sizes_are_the_multiples_of_the_unit(bounds: Bounds, sizes: list[int]):
    assert list(bounds.sizes()) == sizes


def test_processes_are_counted_over_all_replicas():
    assert Allocation(replicas=3, processes_per_replica=4).processes == 12


def test_the_scarcest_resource_decides_how_many_fit():
    each = Resources(cpu_millis=1000, memory_bytes=4, gpus=1)

    assert each.copies_within(Resources(cpu_millis=8000, memory_bytes=10, gpus=4)) == 2
    assert Resources().copies_within(each) is None


def test_the_document_of_the_guide_is_one():
    guide = (Path(__file__).parents[2] / "docs/guides/deciding.md").read_text()
    written = yaml.safe_load(guide.split("```yaml")[1].split("```")[0])

    read = wire.job_document(written)

    assert read.deadline is not None
    assert (read.budget.accelerator_hours, read.budget.cost) == (40, 25)
    assert wire.job_document(wire.document_plain(read)) == read


def with_groups(**fields: Any) -> dict[str, Any]:
    """Two replicas of four processes, and one of eight."""
    return {
        "name": "mixed",
        "command": ["python", "train.py"],
        "replicas": {"min": 3, "max": 5},
        "processesPerReplica": 4,
        "groups": {"large": {"replicas": 1, "processesPerReplica": 8}},
    } | fields


def test_groups_of_a_document_are_part_of_its_size():
    read = wire.job_document(with_groups())
    assert (read.allocation.workers, read.allocation.processes) == (2, 16)
    assert wire.job_document(wire.document_plain(read)) == read


@pytest.mark.parametrize(
    ("fields", "field", "says"),
    [
        (
            {"groups": {"large": {"replicas": 1}}},
            "groups.large.processesPerReplica",
            "is missing; give the number of processes",
        ),
        (
            {"groups": {"large": {"processesPerReplica": 0}}},
            "groups.large.processesPerReplica",
            "groups.large.processesPerReplica 0 must be at least 1",
        ),
        (
            {"groups": {"large": {"replicas": 0, "processesPerReplica": 8}}},
            "groups.large.replicas",
            "groups.large.replicas 0 must be at least 1; correct it, or leave the group out",
        ),
        (
            {"groups": {"ps": {"processesPerReplica": 8}}},
            "groups.ps",
            "has the name of a role; rename the group",
        ),
        ({"groups": {"A 4": {"processesPerReplica": 8}}}, "groups.A 4", "lower-case letters"),
        (
            {"groups": {"large": {"processesPerReplica": 8, "resources": {"gpus": -1}}}},
            "groups.large.resources.gpus",
            "groups.large.resources.gpus -1 is negative; give 0 or more",
        ),
        (
            {"groups": {"large": {"processesPerReplica": 8, "nproc": 2}}},
            "groups.large.nproc",
            "groups.large.nproc is not a known field",
        ),
        (
            {"resourceLimits": {"memoryBytes": -5}},
            "resourceLimits.memoryBytes",
            "resourceLimits.memoryBytes -5 is negative; give 0 or more",
        ),
        ({"replicas": {"min": 1, "max": 5}}, "replicas.min", "raise replicas.min to 2"),
        ({"replicas": {"min": 4, "max": 8, "unit": 2}}, "replicas.unit", "replicas.unit 2 is for"),
        (
            {"parallelism": {"tensor": 2}},
            "parallelism.tensor",
            "leave it out if the job has groups",
        ),
        ({"optimizeMode": "cluster"}, "optimizeMode", "set single-job for a job with groups"),
        ({"batch": {"tune": True}}, "batch.tune", "leave it out if the job has groups"),
        (
            {"processesPerReplica": 1, "roles": {"ps": {"replicas": 1}}},
            "groups",
            "cannot be combined with roles",
        ),
        (
            {"groups": {}, "roles": {"ps": {"processesPerReplica": 2}}},
            "roles.ps.processesPerReplica",
            "leave it out",
        ),
        (
            {"groups": {}, "roles": {"ps": {"accelerator": "A100"}}},
            "roles.ps.accelerator",
            "roles.ps.accelerator A100 has no effect",
        ),
    ],
)
def test_documents_of_impossible_groups_are_refused(fields: dict[str, Any], field: str, says: str):
    with pytest.raises(BadInput, match=re.escape(says)) as refused:
        wire.job_document(with_groups(**fields))
    assert refused.value.field == field


def test_until_its_kind_is_known_a_script_takes_a_batch_that_every_kind_holds():
    assert BatchBounds().local_most is None
    assert BatchBounds(local_max=32).local_most == 32
    assert BatchBounds(local_max=32, local_max_on={"A100": 128}).local_most == 32
    assert BatchBounds(local_max_on={"A100": 128, "T4": 16}).local_most == 16
