"""``GET savings``."""

from datetime import UTC, datetime, timedelta

import pytest

from brain import calls
from brain.errors import BadInput
from brain.types.job import JobState
from brain.types.record import Role
from tests.api.app import Api
from tests.builders import NOW, job, world


def test_it_answers_for_the_last_day_by_default(api: Api):
    with api.client(Role.VIEWER) as client:
        found = client.send(calls.savings())
    assert found.until - found.since == timedelta(days=1)
    assert found.of == ()


def test_a_span_that_is_none_is_refused(api: Api):
    later = datetime(2026, 1, 2, tzinfo=UTC)
    with api.client() as client, pytest.raises(BadInput, match="must be before until"):
        client.send(calls.savings(since=later, until=later))


def test_an_instant_without_zone_is_refused_by_name(api: Api):
    with api.client() as client, pytest.raises(BadInput) as refused:
        client.send(calls.savings(since=datetime(2026, 1, 2)))  # noqa: DTZ001
    assert refused.value.field == "since"


@pytest.mark.parametrize("until", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00"])
def test_instants_at_the_edge_of_time_are_refused_by_name(api: Api, until: str):
    answer = api.http(api.token(Role.VIEWER)).get("/api/v1/savings", params={"until": until})
    assert (answer.status_code, answer.json()["field"]) == (422, "until")


def test_the_shortest_span_has_an_answer(api: Api):
    with api.stores.transaction() as tx:
        tx.jobs.add(job(state=JobState.RUNNING))
        tx.worlds.put(world(formed_at=NOW - timedelta(hours=1)))
    with api.client(Role.VIEWER) as client:
        found = client.send(calls.savings(since=NOW - timedelta(microseconds=5), until=NOW))
    assert len(found.of[0].buckets) == 96
