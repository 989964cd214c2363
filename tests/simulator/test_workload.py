"""Workloads and clusters that cannot be used are refused by field, value and remedy."""

from pathlib import Path

import pytest

from brain import errors
from brain.simulator.applications import CATALOGUE
from brain.simulator.spec import Spec, read_spec
from brain.simulator.workload import Arrival, read_workload
from brain.types.allocation import Bounds
from brain.types.job import BatchBounds, JobDocument
from tests.simulator import building

HEAD = "name,time,application"
EXAMPLES = Path(__file__).parents[2] / "examples"


def read(*rows: str, head: str = HEAD, spec: Spec | None = None) -> tuple[Arrival, ...]:
    return read_workload([head, *rows], spec or building.spec(), CATALOGUE)


def test_a_row_of_three_cells_is_a_job():
    (job,) = read("digits,5,classifier")
    assert job == Arrival(
        name="digits",
        at_seconds=5.0,
        application="classifier",
        wanted=1,
        batch=128,
        bounds=Bounds(min=1, max=8),
    )


def test_the_columns_of_pollux_and_sia_are_read_as_they_are():
    (job,) = read("cifar10-0,107.0,classifier,6,2048", head=f"{HEAD},num_replicas,batch_size")
    assert (job.at_seconds, job.wanted, job.batch) == (107.0, 6, 2048)


def test_a_job_may_begin_with_more_than_it_needs():
    (job,) = read("digits,0,classifier,4", head=f"{HEAD},start_replicas")
    assert job.bounds == Bounds(min=1, max=8, start=4)
    with pytest.raises(errors.BadInput, match="start_replicas '9' is not a multiple of 1 from"):
        read("digits,0,classifier,9", head=f"{HEAD},start_replicas")


def test_jobs_come_in_the_order_of_their_arrival():
    assert [job.name for job in read("b,9,classifier", "a,1,classifier")] == ["a", "b"]


@pytest.mark.parametrize(
    ("row", "head", "said"),
    [
        ("digits,-1,classifier", HEAD, r"line 2: time '-1' must be at least 0; correct it"),
        ("digits,soon,classifier", HEAD, r"line 2: time 'soon' is not a number; correct it"),
        ("digits,nan,classifier", HEAD, r"time 'nan' must be at least 0"),
        ("digits,1e9,classifier", HEAD, r"time '1e9' must be at most 3.16224e\+07"),
        (
            '"' + "x" * 200_000 + '",0,classifier',
            HEAD,
            "line 2 is not valid CSV: field larger than",
        ),
        ("digits,inf,classifier", HEAD, r"time 'inf' must be at least 0"),
        (",0,classifier", HEAD, r"line 2: name '' is empty; name the job"),
        ("digits,0,clasifier", HEAD, r"application 'clasifier' is unknown; did you mean classif"),
        ("digits,0,bert", HEAD, r"application 'bert' is unknown; .*--applications adds tables"),
        ("digits,0,classifier,9", HEAD, r"line 2 has more cells than the head"),
        ("d,0,classifier,9", f"{HEAD},num_replicas", r"num_replicas '9' is more than any kind"),
        ("d,0,classifier,1.5", f"{HEAD},num_replicas", r"'1.5' is not a whole number"),
        ("d,0,classifier,0", f"{HEAD},num_replicas", r"'0' must be at least 1"),
        ("d,0,classifier,9", f"{HEAD},min_replicas", r"min_replicas '9' asks for 9 .* lower it"),
        ("d,0,classifier,3", f"{HEAD},max_replicas", None),
        ("d,0,classifier,16", f"{HEAD},unit", r"min_replicas '' asks for 16"),
        ("d,0,classifier,4,2", f"{HEAD},min_replicas,max_replicas", "'2' leaves no multiple of 1"),
        ("d,0,classifier,5000", f"{HEAD},batch_size", r"batch_size '5000' is above 4096"),
        ("d,0,classifier,maybe", f"{HEAD},declared", r"declared 'maybe' is neither yes nor no"),
        ("d,0,classifier,0", f"{HEAD},scale", r"scale '0' must be above 0"),
        ("d,0,classifier,5000", f"{HEAD},scale", r"scale '5000' must be at most 1000"),
        ("d,0,classifier,job.yaml", f"{HEAD},document", r"document 'job.yaml' names a job"),
        ("digits,0", "name,time", r"column application is missing"),
        ("digits,0,classifier,1", f"{HEAD},num_replica", r"did you mean num_replicas\?"),
        ("digits,0,classifier,1", f"{HEAD},time", "column 'time' occurs twice; remove one"),
        ("digits,0,classifier,1", f"{HEAD},colour", r"column 'colour' is unknown; kn"),
    ],
)
def test_a_cell_that_cannot_be_used_is_named(row: str, head: str, said: str | None):
    if said is None:
        assert read(row, head=head)
        return
    with pytest.raises(errors.BadInput, match=said):
        read(row, head=head)


def test_a_job_that_its_projects_limit_never_lets_run_is_refused():
    nodes = {"t4": {"count": 1, "gpus": 4}}
    spec = read_spec({"nodes": nodes, "projects": {"vision": {"limit": 1}}})

    with pytest.raises(errors.BadInput, match="vision may have 1 accelerators and"):
        read_workload([f"{HEAD},project,min_replicas", "a,0,classifier,vision,2"], spec, CATALOGUE)


def test_two_jobs_of_one_name_are_refused():
    with pytest.raises(errors.BadInput, match=r"line 3: name 'a' is the name of two jobs"):
        read("a,0,classifier", "a,1,classifier")


def test_an_empty_workload_is_refused():
    with pytest.raises(errors.BadInput, match="has no job"):
        read()
    with pytest.raises(errors.BadInput, match="column name is missing"):
        read_workload([], building.spec(), CATALOGUE)


def test_a_job_document_gives_bounds_and_what_is_declared():
    document = JobDocument(
        name="other",
        command=("x",),
        replicas=Bounds(min=2, max=4, unit=2),
        steps=100,
        batch=BatchBounds(global_size=256),
        priority=3,
    )
    (job,) = read_workload(
        [f"{HEAD},document", "digits,0,classifier,job.yaml"],
        building.spec(),
        CATALOGUE,
        documents=lambda path: document,
    )
    assert (job.bounds, job.batch, job.priority, job.declared) == (
        Bounds(min=2, max=4, unit=2), 256, 3, True
    )  # fmt: skip


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (None, "must be a mapping that begins with nodes"),
        ({}, "nodes"),
        ({"nodes": {}}, "nodes is empty"),
        ({"nodes": {"t4": {"count": 0, "gpus": 4}}}, r"nodes.t4.count 0 must be at least 1"),
        ({"nodes": {"t4": {"count": 1, "gpus": -4}}}, r"nodes.t4.gpus -4 must be at least 1"),
        ({"nodes": {"t4": {"count": 1, "gpu": 4}}}, r"did you mean nodes.t4.gpus\?"),
        ({"nodes": {"t4": {"count": "x", "gpus": 4}}}, r"nodes.t4.count 'x' is not a whole number"),
        ({"nodes": {"t4": [1]}}, r"nodes.t4 \[1\] is not a group of fields; .* for example count"),
        (
            {"nodes": {"t4": {"count": 1, "gpus": 4, "speed": "fast"}}},
            r"speed 'fast' is not a number",
        ),
        ({"nodes": {"t4": {"count": 9999, "gpus": 999}}}, r"more than 65536; lower a count"),
        ({"nodes": {"t4": {"count": 1, "gpus": 4, "speed": 0}}}, r"speed 0 must be above 0"),
        ({"nodes": {"t4": {"count": 1, "gpus": 1}}, "turnSeconds": -1}, r"turnSeconds -1 must"),
        ({"nodes": {"t4": {"count": 1, "gpus": 1}}, "turnSecond": 1}, r"did you mean turnSeconds"),
        (
            {
                "nodes": {"t4": {"count": 1, "gpus": 4}},
                "projects": {"vision": {"guaranteed": 5}},
            },
            r"add up to 5, but the pool has 4 accelerators; lower them",
        ),
        (
            {"nodes": {"t4": {"count": 1, "gpus": 1}}, "failures": {"perNodeDay": -1}},
            r"failures.perNodeDay -1 must be at least 0",
        ),
        (
            {"nodes": {"t4": {"count": 1, "gpus": 1}}, "stragglers": {"perNodeDay": 1e9}},
            r"stragglers.perNodeDay 1e\+09 is more than 10000; lower it",
        ),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(document: object, said: str):
    with pytest.raises(errors.BadInput, match=said):
        read_spec(document)


def test_the_example_can_be_read():
    import yaml

    spec = read_spec(yaml.safe_load((EXAMPLES / "cluster.yaml").read_text()))
    lines = (EXAMPLES / "workload.csv").read_text().splitlines()
    assert len(read_workload(lines, spec, CATALOGUE)) == len(lines) - 1
