"""``POST jobs:estimate``."""

import pytest

from brain import calls
from brain.errors import BadInput, ImpossibleBounds, NotAllowed, UnknownField
from brain.types.estimate import EstimateQuestion
from brain.types.record import Role
from tests.api.app import Api, digits


def test_a_viewer_may_ask_what_a_job_needs(api: Api):
    api.add_node(cpus=4)
    with api.client(Role.VIEWER) as client:
        answer = client.send(calls.estimate(digits(), EstimateQuestion(steps=10)))
    assert [(size.accelerator, size.replicas) for size in answer.sizes] == [
        ("cpu", 1),
        ("cpu", 2),
        ("cpu", 3),
        ("cpu", 4),
    ]


def test_an_agent_may_not(api: Api):
    with api.client(Role.AGENT, job="some") as client, pytest.raises(NotAllowed):
        client.send(calls.estimate(digits()))


def test_without_history_it_says_what_is_missing_and_how_to_get_it(api: Api):
    api.add_node()
    with api.client() as client:
        answer = client.send(calls.estimate(digits()))
    assert answer.exploring
    assert "brain estimate --probe" in answer.missing[0]


def test_it_keeps_nothing(api: Api):
    api.add_node()
    with api.client() as client:
        client.send(calls.estimate(digits()))
        assert client.send(calls.jobs()).items == ()


@pytest.mark.parametrize(
    ("document", "question", "error", "field"),
    [
        (digits(replica=1), None, UnknownField, "replica"),
        (digits(replicas={"min": 3, "max": 2}), None, ImpossibleBounds, "replicas.min"),
        (digits(), EstimateQuestion(steps=0), BadInput, "steps"),
        (digits(), EstimateQuestion(deadline_seconds=0.0), BadInput, "deadline_seconds"),
        (digits(), EstimateQuestion(prices={"A100": -1.0}), BadInput, "prices.A100"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_field(
    api: Api, document: dict, question: EstimateQuestion | None, error: type[BadInput], field: str
):
    with api.client() as client, pytest.raises(error) as refused:
        client.send(calls.estimate(document, question))
    assert refused.value.field == field


def test_prices_of_the_installation_are_used(api: Api):
    api.add_node()
    with api.client() as client:
        answer = client.send(calls.estimate(digits()))
    assert answer.currency == "€"
    assert any("accelerator_prices" in sentence for sentence in answer.missing)
