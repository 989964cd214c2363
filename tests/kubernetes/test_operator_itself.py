"""What an operator knows of its own pod."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from brain.errors import BadInput
from scaler.kubernetes.dependents.own_pod import injected
from scaler.kubernetes.pods.manifest import AgentInjection
from scaler.kubernetes.runtime.cluster import Cluster, Forbidden

OWN = AgentInjection(image="own")


def reading(pod: Callable[[], dict[str, Any]]) -> Cluster:
    return cast(Cluster, SimpleNamespace(get=lambda kind, namespace, name: pod()))


def forbidden() -> dict[str, Any]:
    raise Forbidden("pods are forbidden")


def test_the_agents_image_may_be_that_of_the_operators_own_container():
    own = {"name": "scaler", "image": "registry.example/brain:2"}
    pod = {"spec": {"containers": [{"name": "mesh", "image": "proxy:1"}, own]}}

    found = injected(OWN, reading(lambda: pod), "brain", {"POD_NAME": "scaler-0"})

    assert found == AgentInjection(image="registry.example/brain:2")


@pytest.mark.parametrize("environ", [{}, {"POD_NAME": "scaler-0"}])
def test_an_operator_that_cannot_know_it_says_what_to_do(environ: dict[str, str]):
    with pytest.raises(BadInput, match="or give --agent-image"):
        injected(OWN, reading(forbidden), "brain", environ)


@pytest.mark.parametrize(
    "said", [None, AgentInjection(image="brain:1"), AgentInjection(image=None)]
)
def test_what_was_named_is_not_asked_for(said: AgentInjection | None):
    assert injected(said, reading(forbidden), "brain", {}) == said
