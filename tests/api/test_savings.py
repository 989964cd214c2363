"""``GET savings``."""

from datetime import UTC, datetime, timedelta

import pytest

from brain import calls
from brain.errors import BadInput
from brain.types.record import Role
from tests.api.app import Api


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
