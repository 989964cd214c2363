"""A job that names no amounts begins with those of similar ones, through the submit route."""

from pathlib import Path
from typing import Any

import pytest

from brain import calls
from brain.types.allocation import Bounds
from brain.types.document import UNSAID
from brain.types.estimate import EstimateQuestion
from brain.types.resources import Resources
from brain.types.world import WorldEvent
from tests import builders
from tests.api.app import Api
from tests.virtual import Laptop, scaling_by

GIB = 2**30


@pytest.fixture
def api(tmp_path: Path) -> Api:
    """A Brain that saw one run of a script."""
    fixed = {"replicas": Bounds(min=1, max=1), "resources": UNSAID, "script_hash": "a1"}
    here = Laptop(scaling_by(0.9), **fixed).start()
    for _ in range(60):
        here.train(5)
        reading = builders.host(
            int(here.now.timestamp()),
            job=here.id,
            measured_at=here.now,
            job_cpu_millis=700,
            job_memory_bytes=GIB,
        )
        with here.stores.transaction() as tx:
            tx.telemetry.add([reading], received_at=here.now)
        here.turn()
    here.report(WorldEvent.FINISHED)
    return Api(tmp_path, stores=here.stores, now=here.now, settings=here.settings)


def document(**fields: Any) -> dict[str, Any]:
    command = list(builders.document().command)
    plain = {"name": "again", "command": command, "scriptHash": "a1"}
    return plain | {"replicas": {"min": 1, "max": 1}} | fields


def test_the_estimate_is_what_the_job_begins_with_and_says_why(api: Api):
    with api.client(name="ada") as client:
        (row,) = client.send(calls.estimate(document(), EstimateQuestion())).sizes
        job = client.send(calls.submit(document())).id
    assert row.cpu_millis is not None
    assert row.memory_bytes is not None
    with api.stores.transaction(read_only=True) as tx:
        begun = tx.jobs.get(job).resources
        (told,) = [e.message for e in tx.events.after(0) if e.kind == "job.amounts"]
    assert begun == Resources(
        cpu_millis=round(row.cpu_millis.value), memory_bytes=round(row.memory_bytes.value)
    )
    assert 700 < begun.cpu_millis < 900
    assert GIB < begun.memory_bytes < 1.3 * GIB
    assert "exploring" in told


@pytest.mark.parametrize(
    "fields",
    [
        {"resources": {"cpuMillis": 500}},
        {"resources": {"memoryBytes": GIB}},
        {"policy": {"mode": "approve"}},
        {"optimizeMode": "manual"},
        {"command": ["python", "other.py"], "scriptHash": "b2"},
    ],
)
def test_what_is_named_or_unlike_or_left_to_people_stays(api: Api, fields: dict[str, Any]):
    with api.client(name="ada") as client:
        job = client.send(calls.submit(document(**fields))).id
    with api.stores.transaction(read_only=True) as tx:
        assert tx.jobs.get(job).amounts is None
