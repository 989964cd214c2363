"""A job that names no amounts begins with those of earlier runs, through the submit route."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from brain import calls, estimates
from brain.db import SqlStores
from brain.settings import Settings
from brain.types.allocation import Bounds
from brain.types.document import UNSAID
from brain.types.estimate import EstimateQuestion
from brain.types.resources import PoolName, Resources
from brain.types.world import WorldEvent
from tests import builders
from tests.api.app import Api
from tests.statements import statements
from tests.virtual import Laptop, scaling_by

GIB = 2**30


def ran(home: Path, *, turns: int = 65, failed: bool = False, leaks: float = 0.0) -> Api:
    """A Brain that saw one run of a script, a turn each half minute in which it keeps ``leaks``."""
    fixed = {"replicas": Bounds(min=1, max=1), "resources": UNSAID, "script_hash": "a1"}
    here = Laptop(scaling_by(0.9), **fixed).start()
    for turn in range(turns):
        here.train(5).wait(25)
        reading = builders.host(
            int(here.now.timestamp()),
            job=here.id,
            measured_at=here.now,
            job_cpu_millis=700,
            job_memory_bytes=round(GIB + leaks * turn),
        )
        with here.stores.transaction() as tx:
            tx.telemetry.add([reading], received_at=here.now)
        here.turn()
    if failed:
        here.report(WorldEvent.LOST, final=True)
    else:
        here.report(WorldEvent.FINISHED)
    return Api(home, stores=here.stores, now=here.now, settings=here.settings)


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return ran(tmp_path)


def document(**fields: Any) -> dict[str, Any]:
    command = list(builders.document().command)
    plain = {"name": "again", "command": command, "scriptHash": "a1", "batch": {"globalSize": 64}}
    return plain | {"replicas": {"min": 1, "max": 1}} | fields


def begun(api: Api, **fields: Any) -> Resources | None:
    with api.client(name="ada") as client:
        job = client.send(calls.submit(document(**fields))).id
    with api.stores.transaction(read_only=True) as tx:
        return tx.jobs.get(job).amounts


def test_a_job_begins_with_what_its_script_needed_and_says_why(api: Api):
    amounts = begun(api)
    with api.client(name="ada") as client:
        (row,) = client.send(calls.estimate(document(), EstimateQuestion())).sizes
    with api.stores.transaction(read_only=True) as tx:
        (told,) = [e.message for e in tx.events.after(0) if e.kind == "job.amounts"]
    assert amounts is not None
    assert row.cpu_millis is not None
    assert row.memory_bytes is not None
    assert amounts.cpu_millis == pytest.approx(row.cpu_millis.value, rel=0.05)
    assert amounts.memory_bytes == pytest.approx(row.memory_bytes.value, rel=0.05)
    assert 700 < amounts.cpu_millis < 900
    assert GIB < amounts.memory_bytes < 1.3 * GIB
    assert "exploring" in told


def test_earlier_runs_are_read_together(sqlite_url: str):
    """Short runs, of which none was read for long enough."""
    wanted = builders.document(resources=UNSAID, script_hash="a1")
    with closing(SqlStores(sqlite_url)) as stores, statements() as asked:
        with stores.transaction() as tx:
            for number in range(60):
                made = builders.job(f"j{number}", name=f"n{number}")
                tx.jobs.add(replace(made, document=replace(wanted, name=f"n{number}")))
        asked.clear()
        with stores.transaction() as tx:
            found = estimates.first_amounts(
                tx,
                wanted,
                owner="ada",
                pool=PoolName("local"),
                settings=Settings(policy_mode="auto"),
                now=builders.NOW,
            )
    assert found is None
    assert len([one for one in asked if "FROM fits" in one]) == 1


def test_a_run_read_only_at_its_start_limits_no_memory(tmp_path: Path):
    assert begun(ran(tmp_path, turns=40)) is None


def test_a_run_that_failed_limits_no_memory(tmp_path: Path):
    assert begun(ran(tmp_path, failed=True)) is None


def test_what_a_leak_filled_is_reserved_by_no_later_run(tmp_path: Path):
    api = ran(tmp_path, leaks=0.1 * GIB)
    amounts = begun(api)
    with api.client(name="ada") as client:
        estimate = client.send(calls.estimate(document(), EstimateQuestion()))
    with api.stores.transaction(read_only=True) as tx:
        (told,) = [e.message for e in tx.events.after(0) if e.kind == "job.amounts"]
        assert [e.kind for e in tx.events.after(0)].count("job.memory-leak") == 1
    assert amounts is not None
    assert 700 < amounts.cpu_millis < 900
    assert amounts.memory_bytes == 0
    assert "memory that leaked in digits is left out" in told
    assert estimate.sizes[0].memory_bytes is None
    assert "Memory: digits leaked memory, so their memory use is left out." in estimate.missing


@pytest.mark.parametrize(
    "fields",
    [
        {"resources": {"cpuMillis": 500}},
        {"resources": {"memoryBytes": GIB}},
        {"policy": {"mode": "approve"}},
        {"optimizeMode": "manual"},
        {"command": ["python", "other.py"], "scriptHash": "b2"},
        {"scriptHash": "b2"},
        {"command": ["python", "train.py", "--hidden", "4096"]},
        {"batch": {"globalSize": 4096}},
        {"replicas": {"min": 2, "max": 2}, "groups": {"large": {"processesPerReplica": 8}}},
    ],
)
def test_what_is_named_or_unlike_or_left_to_people_stays(api: Api, fields: dict[str, Any]):
    assert begun(api, **fields) is None
