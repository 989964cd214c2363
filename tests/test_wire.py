"""Values as JSON and back; messages tolerate what documents refuse."""

import re
from datetime import timedelta
from typing import Any

import pytest

from brain import wire
from brain.errors import BadInput, ImpossibleBounds, UnknownField, UnknownVersion
from brain.keys import field_paths
from brain.types.job import Job, JobDocument, PolicyMode, Secret
from brain.types.plan import ScalePlan
from brain.types.sharing import PoolShares
from brain.types.telemetry import Sample
from brain.types.world import DesiredWorld, Replica, World
from tests.builders import NOW, host, job, loss, plan, save, throughput, world

DOCUMENT: dict[str, Any] = {
    "name": "digits",
    "command": ["python", "train.py"],
    "replicas": {"min": 1, "max": 4, "unit": 1},
    "processesPerReplica": 2,
    "batch": {"globalSize": 64},
    "policy": {"mode": "auto"},
    "environment": {"MY_KEY": "value", "TOKEN": {"fromFile": "/run/token"}},
}


@pytest.mark.parametrize(
    "value", [job(), plan(), world(2, replicas=2)], ids=lambda v: type(v).__name__
)
def test_a_value_comes_back_as_it_was(value: Job | ScalePlan | World):
    assert wire.decode(wire.encode(value), type(value)) == value


@pytest.mark.parametrize(
    "sample", [throughput(), save(), host(), loss(3)], ids=lambda s: type(s).__name__
)
def test_a_sample_names_its_kind_and_comes_back(sample: Sample):
    assert wire.decode_sample(wire.encode_sample(sample)) == sample


def test_a_batch_is_parsed_sample_by_sample():
    body = wire.encode_batch([throughput(0), save(1)], sent_at=NOW + timedelta(seconds=2))

    envelope = wire.decode_envelope(body)

    assert [wire.decode_sample(raw) for raw in envelope.samples] == [throughput(0), save(1)]


def test_a_message_tolerates_fields_of_a_newer_version():
    body = wire.plain(plan()) | {"invented_later": 1}

    assert wire.convert(body, ScalePlan) == plan()


def test_a_bad_message_names_field_and_expected_type():
    with pytest.raises(BadInput, match="Expected `int`") as refused:
        wire.convert(wire.plain(plan()) | {"generation": "one"}, ScalePlan)

    assert refused.value.field == "generation"


def test_a_message_that_is_no_json_is_refused():
    with pytest.raises(BadInput, match="not JSON"):
        wire.decode(b"{", DesiredWorld)


def test_a_version_that_is_not_spoken_is_refused_with_whom_to_upgrade():
    with pytest.raises(UnknownVersion, match="upgrade this service"):
        wire.decode_envelope(b'{"v": 99, "sent_at": "2026-01-01T00:00:00Z", "samples": []}')
    with pytest.raises(UnknownVersion, match="upgrade the collector"):
        wire.decode_envelope(b'{"v": 0, "sent_at": "2026-01-01T00:00:00Z", "samples": []}')


def test_a_sample_of_unknown_kind_is_refused_with_the_known_ones():
    with pytest.raises(BadInput, match="throughput, save, host, loss"):
        wire.decode_sample(b'{"kind": "mood"}')


def test_the_kind_of_a_sample_is_its_last_own_kind_wherever_that_stands():
    line = wire.encode_sample(throughput()).removesuffix(b',"kind":"throughput"}')
    first = b'{"kind":"throughput",' + line[1:]

    for same in (first + b"}", first + b',"kind": "throughput" }', b'{"kind":"save",' + line[1:]):
        whole = same if same.endswith(b"}") else same + b',"kind":"throughput"}'
        assert wire.decode_sample(whole) == throughput()
    for other in (
        # In a value, in a key, and in an object within.
        b'{"kind":"mood","note":",\\"kind\\":\\"throughput\\"}',
        b'{"kind":"mood",",\\"kind":"throughput"',
        b'{"kind":"mood","within":{"a":1,"kind":"throughput"}',
    ):
        with pytest.raises(BadInput, match=r"mood|not JSON"):
            wire.decode_sample(other + b"," + line[1:] + b"}")
        with pytest.raises(BadInput, match=r"mood|not JSON"):
            wire.decode_sample(other + b"}")


def test_samples_parsed_together_are_those_parsed_one_by_one():
    alike = [wire.encode_sample(throughput(n, step_seconds_mean=0.1 + n)) for n in range(3)]

    assert wire.decode_alike(alike) == [wire.decode_sample(line) for line in alike]
    for other in (
        wire.encode_sample(save(1)),
        alike[0].replace(b'"v"', b'"w"').replace(b"12:00:00Z", b"12:00:00"),
        alike[0].replace(b'"steps":', b'"steps":"many","stops":'),
        alike[0].replace(b'"accelerator":"', b'"accelerator":"\\u0000'),
        alike[0].replace(b'"step":', b'"note":12345678901234567890,"step":'),
        alike[0].removesuffix(b',"kind":"throughput"}') + b"}",
    ):
        assert wire.decode_alike([*alike, other]) is None
    assert wire.decode_alike([]) is None


def test_a_sample_without_a_time_zone_is_refused():
    naive = wire.encode_sample(throughput()).replace(b"12:00:00Z", b"12:00:00")

    with pytest.raises(BadInput, match="append Z"):
        wire.decode_sample(naive)


def test_a_document_is_read_in_camel_case_and_written_back_the_same():
    document = wire.job_document(DOCUMENT)

    assert (document.processes_per_replica, document.batch.global_size) == (2, 64)
    assert document.policy.mode is PolicyMode.AUTO
    assert wire.job_document(wire.document_plain(document)) == document


def test_names_in_the_environment_are_the_users_own():
    document = wire.job_document(DOCUMENT)

    assert document.environment == {"MY_KEY": "value", "TOKEN": Secret(from_file="/run/token")}
    assert set(wire.document_plain(document)["environment"]) == {"MY_KEY", "TOKEN"}


def test_a_document_is_written_with_camel_case_fields_and_the_users_own_names() -> None:
    document = wire.job_document(
        {
            "name": "digits",
            "command": ["train"],
            "replicas": {"min": 3, "max": 4},
            "groups": {"big-ones": {"replicas": 1, "processesPerReplica": 8}},
            "batch": {"globalSize": 64, "localMaxOn": {"gpu_of_old": 4}},
            "environment": {"plain_text": "x", "from_file": {"fromFile": "/run/token"}},
        }
    )
    plain = wire.document_plain(document)

    assert plain["groups"] == {
        "big-ones": {
            "replicas": 1,
            "processesPerReplica": 8,
            "resources": None,
            "accelerator": None,
        }
    }
    assert plain["batch"]["localMaxOn"] == {"gpu_of_old": 4}
    secret = {"fromFile": "/run/token", "fromSecret": None}
    assert plain["environment"] == {"plain_text": "x", "from_file": secret}
    assert plain["deadline"] is None
    paths = set(field_paths(JobDocument))
    assert {name.partition(".")[0] for name in paths} == plain.keys()


@pytest.mark.parametrize(
    ("extra", "field", "hint"),
    [
        ({"replica": {}}, "replica", "did you mean replicas?"),
        ({"replicas": {"mim": 1}}, "replicas.mim", "did you mean replicas.min?"),
        ({"processes_per_replica": 2}, "processes_per_replica", "processesPerReplica"),
        ({"resources": {"cpu": 4}}, "resources.cpu", "did you mean resources.cpuMillis?"),
        ({"resources": {"mem": 4}}, "resources.mem", "did you mean resources.memoryBytes?"),
        ({"resources": {"gpu": 4}}, "resources.gpu", "did you mean resources.gpus?"),
        ({"cpu": 4}, "cpu", "did you mean resources.cpuMillis or resourceLimits.cpuMillis?"),
        ({"max": 4}, "max", "did you mean replicas.max?"),
        ({"mode": "auto"}, "mode", "did you mean policy.mode?"),
        (
            {"memory": 1},
            "memory",
            "resources.memoryBytes, resourceLimits.memoryBytes or checkpoint.memory?",
        ),
        (
            {"batch": {"local": 1}},
            "batch.local",
            "batch.localMin, batch.localMax or batch.localMaxOn?",
        ),
        ({"policy": {"name": 1}}, "policy.name", "did you mean name?"),
        ({"zzz": 1}, "zzz", "known: name, command"),
    ],
)
def test_an_unknown_field_of_a_document_names_the_nearest_known_one(
    extra: dict[str, Any], field: str, hint: str
):
    with pytest.raises(UnknownField) as refused:
        wire.job_document(DOCUMENT | extra)

    assert refused.value.field == field
    assert hint in str(refused.value)


#: Every field of a job document and of a pool's policy, with its path.
FIELDS = [(kind, path) for kind in (JobDocument, PoolShares) for path in field_paths(kind)]


@pytest.mark.parametrize(("kind", "path"), FIELDS, ids=[path for _, path in FIELDS])
def test_every_field_is_named_to_who_slips_at_it(kind: type, path: str):
    *groups, name = path.split(".")
    first = re.split("[A-Z]", name)[0]
    slips = {re.sub("([A-Z])", r"_\1", name).lower(), name.upper(), f"{name}s", name[:-1], first}
    known = {other.rpartition(".")[2] for _, other in FIELDS if other.split(".")[:-1] == groups}
    for slip in slips - known:
        given: Any = {slip: 1}
        for group in reversed(groups):
            given = {group: given}
        with pytest.raises(UnknownField) as refused:
            wire.document(given, kind)
        assert path in str(refused.value).partition("did you mean")[2], slip


@pytest.mark.parametrize(
    ("document", "field", "remedy"),
    [
        ({}, "name", "must be an object that begins with name"),
        (None, "name", "must be an object that begins with name"),
        ([DOCUMENT], "name", "must be an object that begins with name"),
        (DOCUMENT | {"replicas": 3}, "replicas", "write {min: 3, max: 3}"),
        (DOCUMENT | {"command": "python a.py"}, "command", "write a list: [python, a.py]"),
        (DOCUMENT | {"environment": {"A": 5}}, "environment.A", "environment.A is not text; put"),
        (DOCUMENT | {"command": {"python": None}}, "command", "not a list; write [a], for example"),
        (DOCUMENT | {"command": 5}, "command", "command 5 is not a list; write [a], for example"),
        (DOCUMENT | {"environment": ["A=5"]}, "environment", "write {name: value}, for example"),
        (DOCUMENT | {"groups": [1]}, "groups", "groups [1] is not a mapping; write {name: value}"),
        (
            DOCUMENT | {"batch": {"localMaxOn": 512}},
            "batch.localMaxOn",
            "512 is not a mapping; write {name: value}, for example",
        ),
    ],
)
def test_what_people_write_first_is_refused_with_what_to_write_instead(
    document: object, field: str, remedy: str
):
    with pytest.raises(BadInput) as refused:
        wire.job_document(document)

    assert refused.value.field == field
    assert remedy in str(refused.value)


def test_a_document_with_impossible_bounds_is_refused():
    with pytest.raises(ImpossibleBounds):
        wire.job_document(DOCUMENT | {"replicas": {"min": 4, "max": 2}})


def test_reads_what_an_earlier_release_said_without_resources() -> None:
    wish = (
        b'{"job": "j", "generation": 0, "version": 1, "intent": "run", "replicas": 1, '
        b'"processes_per_replica": 1, "unit": 1, "minimum": 1, "patience_seconds": 1.0, '
        b'"restart_limit": 1}'
    )
    seen = (
        b'{"id": 0, "node": "n", "state": "running", "generation": 0, '
        b'"started_at": "2026-01-01T00:00:00Z"}'
    )
    assert wire.decode(wish, DesiredWorld).resources is None
    assert wire.decode(seen, Replica).resources is None
