"""Who gets how much, decided without a clock or a socket."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain.api.limits import (
    BURST_SECONDS,
    BodyBudget,
    Bucket,
    ClientConnection,
    ConnectionTable,
    Rates,
    take,
)
from brain.errors import Overloaded, TooLarge


@given(
    per_second=st.floats(0.1, 1000),
    pauses=st.lists(st.floats(-5, 5), max_size=200),
)
def test_a_bucket_never_gives_more_than_its_burst_and_its_rate(
    per_second: float, pauses: list[float]
) -> None:
    bucket: Bucket | None = None
    now, passed, taken = 100.0, 0.0, 0
    for pause in pauses:
        now += pause
        passed += max(0.0, pause)
        bucket, wait = take(bucket, now, per_second=per_second)
        taken += wait == 0
        assert wait >= 0
    assert taken <= max(1, per_second * BURST_SECONDS) + passed * per_second + 1e-6


def test_who_waits_as_long_as_told_is_let_in() -> None:
    rates = Rates("requests_per_second", 0.5)
    now = 0.0
    for _ in range(10):
        try:
            rates.take("me", now, who="me")
        except Overloaded as told:
            now += told.retry_after_seconds
            rates.take("me", now, who="me")
    assert now > 0


def test_a_flood_of_other_bodies_leaves_telemetry_its_half() -> None:
    budget = BodyBudget(800, body_bytes=100)
    with budget.body("a", telemetry=False) as a, budget.body("b", telemetry=False) as b:
        a(100)
        with pytest.raises(Overloaded, match="body_budget_bytes 800"):
            a(1)
        for each in range(3):
            with budget.body(f"c{each}", telemetry=False) as c:
                c(100)
        b(100)
        with budget.body("agent", telemetry=True) as agent:
            agent(100)
            assert budget.held_bytes == 300
    assert budget.held_bytes == 0


def test_a_body_that_could_never_be_taken_is_too_large() -> None:
    budget = BodyBudget(800, body_bytes=1000)
    with budget.body("a", telemetry=False) as add, pytest.raises(TooLarge):
        add(401)


def _connections(table: ConnectionTable, address: str, count: int) -> list[ClientConnection]:
    made = [ClientConnection(address) for _ in range(count)]
    for each in made:
        assert table.add(each) is None
    return made


def test_the_oldest_that_waits_makes_room_and_nobody_who_signed_in() -> None:
    table = ConnectionTable(most=10, per_address=3)
    first, second, third = _connections(table, "10.0.0.1", 3)
    first.signed_in, second.waits = True, False
    assert table.add(ClientConnection("10.0.0.1")) == (third, "connections_per_address")
    table.remove(third)
    assert len(table) == 3


def test_one_address_that_fills_the_service_makes_room_for_another() -> None:
    table = ConnectionTable(most=4, per_address=4)
    (lonely,) = _connections(table, "10.0.0.2", 1)
    flood = _connections(table, "10.0.0.1", 3)
    assert table.add(ClientConnection("10.0.0.3")) == (flood[0], "connections")
    for each in (lonely, *flood):
        each.signed_in = True
    newest = ClientConnection("10.0.0.4")
    assert table.add(newest) is not None
    newest.signed_in = True
    with pytest.raises(Overloaded, match="everybody reached connections 4"):
        table.add(ClientConnection("10.0.0.5"))


def test_a_trusted_proxy_stands_for_many() -> None:
    table = ConnectionTable(most=10, per_address=1)
    for _ in range(5):
        assert table.add(ClientConnection("10.0.0.7"), is_proxy=True) is None
