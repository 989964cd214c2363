"""What ``brain report`` and ``brain explain`` say of a job that leaks memory, by a real service."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from brain import wire
from brain.db import SqlStores, prepare
from brain.estimates.usage import KIND, Used
from brain.models.estimate.past import WorldUse
from brain.models.resources.use import RoleUse
from brain.ports import StoredFit, Transaction
from brain.types.estimate import Band
from brain.types.job import JobId, JobState
from brain.types.resources import Resources
from tests import builders
from tests.cli.terminal import typed
from tests.web import seed
from tests.web.served import Served

LEAKY = JobId("0197f000-0000-7000-8000-00000000000e")
AMPLE = JobId("0197f000-0000-7000-8000-00000000000f")
UNREAD = JobId("0197f000-0000-7000-8000-00000000000d")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment that reaches a service with three jobs, which another Brain decides about."""
    home = tmp_path_factory.mktemp("leaking")
    url, now = f"sqlite:///{home / 'brain.db'}", datetime.now(UTC)
    prepare(url)
    with closing(SqlStores(url)) as stores, stores.transaction() as tx:
        tx.leases.acquire(seed.LOCAL, "elsewhere", until=now + timedelta(hours=6), now=now)
        tx.jobs.add(seed.job(UNREAD, "unread", now, JobState.RUNNING, reason="steps"))
        used(tx, LEAKY, "leaky", now, cores=1, lasts=Band(value=1800.0, low=1500.0, high=2400.0))
        used(tx, AMPLE, "ample", now, cores=2)
    running = Served(home)
    running.start()
    yield {"BRAIN_URL": running.url, "BRAIN_TOKEN": running.admin}
    running.stop()


def used(
    tx: Transaction, id: JobId, name: str, now: datetime, *, cores: int, lasts: Band | None = None
) -> None:
    """Store a job that uses a quarter of a core; ``lasts``: it leaks memory.

    It was read until an hour from now, so that its readings are never old.
    """
    use = RoleUse(role="worker", cpu_limit_millis=4000, memory_limit_bytes=2 << 30)
    for minute in range(-60, 61):
        at = (now + timedelta(minutes=minute)).timestamp()
        use = use.with_reading(at_seconds=at, cpu_millis=(250.0,), memory_bytes=(1.5 * 2**30,))
    found = Used(
        uses=(WorldUse(epoch=1, nodes=1, replicas=1),),
        roles=(use,),
        memory_lasts=lasts,
    )
    reserved = {"resources": Resources(cpu_millis=1000 * cores, memory_bytes=2 << 30)}
    tx.jobs.add(seed.job(id, name, now, JobState.RUNNING, reason="steps", document=reserved))
    tx.worlds.put(
        replace(builders.world(1, stepping_at=now), job=id, formed_at=now - timedelta(hours=2))
    )
    kept = wire.encode(found).decode()
    tx.fits.put(StoredFit(job=id, kind=KIND, parameters=kept, fitted_at=now))


def test_a_leak_is_told_by_explain(service: dict[str, str]) -> None:
    said = typed("explain", "leaky", environment=service).stdout.splitlines()
    assert said[-1] == (
        "The job leaks memory and runs out of it in 30 min (25 min to 40 min): find the objects "
        "that the script keeps from step to step; Brain plans a restart at a save if the restart "
        "costs less than running out of memory."
    )


def test_the_report_begins_with_what_matters_and_ends_with_the_next_document(
    service: dict[str, str],
) -> None:
    said = typed("report", "leaky", environment=service).stdout
    assert said.startswith("The job leaks memory and runs out of it in 30 min")
    assert "wasteful" in said
    document = yaml.safe_load(said.partition("The document to submit next time:\n")[2])
    assert document["name"] == "leaky"
    assert document["resources"]["cpuMillis"] == 300
    assert "environment" not in document


def test_the_report_of_a_job_left_to_people_tells_what_brain_would_have_done(
    service: dict[str, str],
) -> None:
    said = typed("report", "ample", environment=service).stdout
    (told,) = [line for line in said.splitlines() if line.startswith("Brain would have changed")]
    assert told.startswith("Brain would have changed CPU 2 → 0.299")
    assert " for each worker: 3.4" in told
    assert told.endswith(
        " less in the last day; Brain did not do so, because policy.mode is approve."
    )


def test_the_report_of_a_job_that_nobody_read_says_what_is_missing(service: dict[str, str]) -> None:
    said = typed("report", "unread", environment=service).stdout.splitlines()
    assert said[0] == "Brain has not measured enough yet to judge the reservation."
    assert said[1].startswith("Missing: there is no reading of this job's machines yet")


def test_the_week_of_an_owner_says_where_to_look(service: dict[str, str]) -> None:
    said = typed("report", "--owner", "ada", environment=service).stdout
    assert " of ada had replicas in week 20" in said
    as_data = json.loads(
        typed("report", "--owner", "ada", "-o", "json", environment=service).stdout
    )
    assert as_data["owner"] == "ada"


def test_a_report_is_of_a_job_or_of_an_owner(service: dict[str, str]) -> None:
    for words in ([], ["leaky", "--owner", "ada"]):
        refused = typed("report", *words, environment=service)
        assert "give either a JOB, or --owner or --week" in refused.stderr
