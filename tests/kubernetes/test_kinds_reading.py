"""Objects are read, or refused with field, value and remedy."""

import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from brain.errors import BadInput, ImpossibleBounds
from scaler.kubernetes.kinds import Strategy
from scaler.kubernetes.kinds.quantities import quantity, resources
from scaler.kubernetes.kinds.reading import read_elastic_job, read_scale_plan
from scaler.kubernetes.pods import places
from scaler.kubernetes.runtime.cluster.nesting import CUT
from tests.kubernetes.jobs import Object, job, main_of, plan, seed

ROOT = Path(__file__).parents[2]
Edit = Callable[[Object], Any]


def worker(of: Object) -> Object:
    """The role ``worker`` of a job."""
    found: Object = of["spec"]["replicaSpecs"]["worker"]
    return found


def refused(edit: Edit) -> BadInput:
    """What reading the seed's job after ``edit`` raises."""
    obj = seed()
    edit(obj)
    with pytest.raises(BadInput) as caught:
        read_elastic_job(obj)
    return caught.value


def test_the_articles_job_is_read_as_it_stands() -> None:
    read = read_elastic_job(seed())
    assert (read.strategy, read.spec.replica_specs["worker"].replicas) == (Strategy.ALLREDUCE, 5)


def test_a_job_is_read_without_restart_policy_and_labels() -> None:
    obj = seed()
    del obj["metadata"]["labels"]
    del worker(obj)["template"]["spec"]["restartPolicy"]
    assert read_elastic_job(obj).metadata.labels == {}


@pytest.mark.parametrize("value", [{"A": "b"}, ["A=b"], [{"value": "b"}], "A=b", 5])
def test_an_environment_of_another_form_is_named_before_a_pod_is_made(value: object) -> None:
    field = refused(lambda obj: main_of(obj).update(env=value)).field or ""
    assert ".containers.0.env" in field


@pytest.mark.parametrize("name", ["volumes", "schedulingGates", "initContainers", "affinity"])
def test_what_of_a_pod_is_of_another_form_is_named(name: str) -> None:
    pod = "spec.replicaSpecs.worker.template.spec"
    said = refused(lambda obj: worker(obj)["template"]["spec"].update({name: "x"}))
    assert said.field == f"{pod}.{name}"


def test_fields_that_nobody_knows_are_tolerated() -> None:
    obj = seed()
    obj["spec"]["criticalNodes"] = "0"
    worker(obj)["template"]["spec"]["runtimeClassName"] = "nvidia"
    read = read_elastic_job(obj)
    template = read.spec.replica_specs["worker"].template
    assert template is not None
    assert template["spec"]["runtimeClassName"] == "nvidia"


def test_a_status_of_another_version_does_not_hide_the_spec() -> None:
    obj = seed() | {"status": {"conditions": "none", "phase": 3}}
    assert read_elastic_job(obj).status.phase == ""


def test_a_job_with_parameter_servers_is_one_of_that_strategy_unless_it_says_otherwise() -> None:
    obj = job("python", "train.py")
    obj["spec"]["replicaSpecs"]["ps"] = worker(obj)
    assert read_elastic_job(obj).strategy is Strategy.PARAMETER_SERVER


BAD: dict[str, tuple[Edit, str, str]] = {
    "a misspelt word": (
        lambda o: o["spec"].update(optimizeMode="clusterr"),
        "spec.optimizeMode",
        "did you mean cluster?",
    ),
    "a word for a number": (
        lambda o: worker(o).update(replicas="two"),
        "spec.replicaSpecs.worker.replicas",
        "give a whole number",
    ),
    "is negative": (
        lambda o: worker(o).update(replicas=-5),
        "spec.replicaSpecs.worker.replicas",
        ">= 0",
    ),
    "a word for yes": (
        lambda o: o["spec"].update(suspend="yes"),
        "spec.suspend",
        "true or false, without quotes",
    ),
    "a role nobody knows": (
        lambda o: o["spec"]["replicaSpecs"].update(wrker=worker(o)),
        "spec.replicaSpecs.wrker",
        "did you mean worker?",
    ),
    "no role": (lambda o: o["spec"].update(replicaSpecs={}), "spec.replicaSpecs", "length >= 1"),
    "no roles at all": (lambda o: o["spec"].pop("replicaSpecs"), "spec.replicaSpecs", "is missing"),
    "no spec": (lambda o: o.pop("spec"), "spec", "is missing; give it"),
    "no template": (
        lambda o: worker(o).pop("template"),
        "spec.replicaSpecs.worker.template.spec.containers",
        "give a container",
    ),
    "no image": (
        lambda o: main_of(o).pop("image"),
        "spec.replicaSpecs.worker.template.spec.containers.0.image",
        "name the image",
    ),
    "a command of numbers": (
        lambda o: main_of(o).update(command=["python", 3]),
        "spec.replicaSpecs.worker.template.spec.containers.0.command",
        "put each item in quotes",
    ),
    "a malformed quantity": (
        lambda o: main_of(o)["resources"]["limits"].update(memory="3Gib"),
        "spec.replicaSpecs.worker.template.spec.containers.0.resources.limits.memory",
        "write `2`, `500m` or `3Gi`",
    ),
    "an amount that no API server keeps": (
        lambda o: main_of(o)["resources"]["requests"].update(memory="1e40"),
        "spec.replicaSpecs.worker.template.spec.containers.0.resources.requests.memory",
        "'1e40' is more than 9223372036854775807; give less",
    ),
    "a grace in quotes": (
        lambda o: worker(o)["template"]["spec"].update(terminationGracePeriodSeconds="60"),
        "spec.replicaSpecs.worker.template.spec.terminationGracePeriodSeconds",
        "'60' is not a whole number; write it without quotes",
    ),
    "a limit below the request": (
        lambda o: main_of(o)["resources"].update(
            requests={"memory": "3Gi"}, limits={"memory": "2Gi"}
        ),
        "spec.replicaSpecs.worker.template.spec.containers.0.resources.limits.memory",
        "'2Gi' is below the request '3Gi', so no node starts the pod; raise the limit",
    ),
    "a limit that is a list": (
        lambda o: o["spec"].update(resourceLimits={"cpu": [1]}),
        "spec.resourceLimits.cpu",
        "give a quantity",
    ),
    "a priority that is none": (
        lambda o: worker(o).update(priority="very high!"),
        "spec.replicaSpecs.worker.priority",
        "give high, low, a share",
    ),
    "a name too long for labels": (
        lambda o: o["metadata"].update(name="x" * 64),
        "metadata.name",
        "1 to 63 lower-case letters",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_used_is_refused_with_field_and_remedy(case: str) -> None:
    edit, field, remedy = BAD[case]
    error = refused(edit)
    assert error.field == field
    assert remedy in str(error)


def test_a_minimum_above_the_maximum_is_refused() -> None:
    error = refused(lambda o: worker(o).update(minReplicas=5, maxReplicas=2))
    assert isinstance(error, ImpossibleBounds)
    assert "5 is more than maxReplicas 2; raise maxReplicas" in str(error)


def test_a_unit_that_never_fits_is_refused_with_the_number_that_would() -> None:
    error = refused(lambda o: worker(o).update(unit=4, maxReplicas=3))
    assert "unit 4 has no multiple from 1 to 3; raise maxReplicas to 4" in str(error)


def test_dlrovers_master_pod_needs_no_image() -> None:
    obj = seed()
    obj["spec"]["replicaSpecs"]["dlrover-master"] = {"restartCount": 3}
    assert read_elastic_job(obj).scaled == "worker"


def test_a_plan_finds_its_job_by_field_or_by_either_label() -> None:
    wish = {"replicaResourceSpecs": {"worker": {"replicas": 2}}}
    by_field = read_scale_plan(plan(wish | {"ownerJob": "digits"}))
    by_label = read_scale_plan(plan(wish, labels={"elasticjob.dlrover/name": "digits"}))
    by_old_label = read_scale_plan(plan(wish, labels={"elasticjob-name": "digits"}))
    assert {by_field.job, by_label.job, by_old_label.job} == {"digits"}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"replicaResourceSpecs": {"worker": {"replicas": 2}}}, "spec.ownerJob"),
        ({"ownerJob": "digits"}, "spec"),
        (
            {"ownerJob": "digits", "replicaResourceSpecs": {"worker": {}}},
            "spec.replicaResourceSpecs.worker",
        ),
        (
            {"ownerJob": "digits", "replicaResourceSpecs": {"Boss": {"replicas": 1}}},
            "spec.replicaResourceSpecs.Boss",
        ),
        (
            {"ownerJob": "digits", "replicaResourceSpecs": {"worker": {"resource": {"cpu": "x"}}}},
            "spec.replicaResourceSpecs.worker.resource.cpu",
        ),
        ({"ownerJob": "digits", "removePods": [{"id": 3}]}, "spec.removePods.0.name"),
    ],
)
def test_a_plan_of_which_nothing_can_come_is_refused(spec: Object, field: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_scale_plan(plan(spec))
    assert caught.value.field == field


@pytest.mark.parametrize("text", ["nan", "1_000", " 2", "3Gib", "-1", "", "1e", True, None])
def test_what_the_api_server_takes_for_no_quantity_is_none_here(text: object) -> None:
    with pytest.raises(BadInput):
        quantity(text, "cpu")


def test_a_tiny_amount_is_the_smallest_that_the_api_server_keeps() -> None:
    assert (quantity("1e-999999999", "cpu"), quantity("0", "cpu")) == (Decimal("1e-9"), 0)


#: Eight threads that read a kind, and a message, for the first time.
AT_ONCE = """
import sys, threading
from brain import wire
from brain.views import DesiredJob
from scaler.kubernetes.kinds import ElasticJob
from tests.kubernetes.jobs import seed
sys.setswitchinterval(1e-6)
together, obj = threading.Barrier(8), seed()
def read():
    together.wait()
    for _ in range(5):
        read_elastic_job(obj)
        try: wire.convert({}, DesiredJob)
        except wire.BadInput: pass
threads = [threading.Thread(target=read) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
"""


def test_threads_that_read_for_the_first_time_at_once_do_not_kill_the_process() -> None:
    for _ in range(3):
        subprocess.run([sys.executable, "-c", AT_ONCE], check=True, cwd=ROOT)


def test_amounts_become_our_units() -> None:
    amounts = {"cpu": "1500m", "memory": "1.5Gi", "nvidia.com/gpu": 2, "ephemeral-storage": "1G"}
    found = resources(amounts, "requests")
    assert (found.cpu_millis, found.memory_bytes, found.gpus) == (1500, 3 * 2**29, 2)


@pytest.mark.parametrize("levels", [100, 500, 5000])
def test_a_template_that_is_nested_too_deeply_is_refused_and_tolerates_nothing(levels: int) -> None:
    def edit(obj: Object) -> None:
        deep: Object = {}
        for _ in range(levels):
            deep = {"a": deep}
        worker(obj)["template"]["x"] = deep
        assert places.tolerations_in(obj) == ()

    said = refused(edit)
    assert said.field == "spec.replicaSpecs.worker.template"
    assert "nested more than 100 levels deep" in str(said)


def test_a_template_that_was_cut_because_of_its_depth_is_refused() -> None:
    said = refused(lambda obj: worker(obj).update(template=CUT))
    assert said.field == "spec.replicaSpecs.worker.template"
    assert "nested more than 100 levels deep" in str(said)
