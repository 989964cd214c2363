"""Spans of turns and of transactions, without a service."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from brain import cycle
from brain.api.bell import Bell
from brain.api.metrics import Metrics, ServiceCondition
from brain.api.tracing import TracedStores, tracer_of
from brain.inmemory import MemoryStores
from brain.service.tick import Ticker
from tests.builders import NOW, job
from tests.pool.rounds.fleet import Fleet
from tests.virtual import POOL, QUICK, Laptop, scaling_by

Attributes = dict[str, str | int]


@pytest.fixture
def exported() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exported: InMemorySpanExporter) -> TracerProvider:
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(SimpleSpanProcessor(exported))
    return made


class Recording:
    """A ``Tracer`` that keeps names and attributes."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Attributes]] = []

    @contextmanager
    def __call__(self, name: str, attributes: Attributes) -> Iterator[None]:
        yield
        self.spans.append((name, attributes))


def test_a_job_that_is_decided_about_has_a_span_with_the_decision() -> None:
    laptop, trace = Laptop(scaling_by(0.9)).start(), Recording()
    laptop.live(10)
    done = cycle.turn(laptop.stores, POOL, laptop.settings, laptop.now, trace=trace)
    (decision,) = done.decisions.values()
    told = {"brain.job": laptop.job.id, "brain.decision": decision.explanation.code}
    assert trace.spans == [("decide", {"brain.pool": POOL} | told)]


def test_a_round_has_a_span_with_the_numbers_of_its_jobs_and_plans() -> None:
    fleet, trace = Fleet({"a": 4}), Recording()
    for name in ("good", "bad"):
        fleet.submit(name, scaling_by(0.9))
    fleet.live(10)
    done = cycle.turn(fleet.stores, POOL, fleet.settings, fleet.now, trace=trace)
    assert [name for name, _ in trace.spans] == ["decide", "decide", "round"]
    told = {"brain.pool": POOL, "brain.jobs": 2, "brain.plans": len(done.plans)}
    assert trace.spans[-1][1] == told


def test_a_turn_that_fails_has_a_failed_span_with_its_transactions_below(
    tmp_path: Path, exported: InMemorySpanExporter, provider: TracerProvider
) -> None:
    stores, metrics = MemoryStores(), Metrics()
    with stores.transaction() as tx:
        tx.jobs.add(job())
    ticker = Ticker(
        TracedStores(stores, provider),
        QUICK,
        lambda: NOW,
        home=tmp_path,
        bell=Bell(),
        metrics=metrics,
        condition=ServiceCondition(metrics),
        turn=lambda *_: 1 // 0,
        trace=tracer_of(provider),
    )
    ticker.tick()
    *transactions, turn = exported.get_finished_spans()
    assert (turn.name, turn.status.status_code) == ("turn", StatusCode.ERROR)
    assert turn.attributes is not None
    assert turn.attributes["error.type"] == "ZeroDivisionError"
    assert {span.name for span in transactions} == {"transaction"}
    assert all(span.parent == turn.context for span in transactions)


def test_a_transaction_of_neither_request_nor_turn_has_no_span(
    exported: InMemorySpanExporter, provider: TracerProvider
) -> None:
    with TracedStores(MemoryStores(), provider).transaction() as tx:
        assert not tx.jobs.pools()
    assert exported.get_finished_spans() == ()
