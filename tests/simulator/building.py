"""Small worlds for tests: each builder fills in what a test is not about."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from brain.settings import Settings, settings_from
from brain.simulator.applications import Application, Profile
from brain.simulator.policies import POLICIES
from brain.simulator.run import Direct, PolicyOutcome, simulate
from brain.simulator.spec import NodeKind, Spec
from brain.simulator.workload import Arrival
from brain.simulator.world import SimulatedCluster
from brain.types.allocation import Bounds
from brain.types.job import OptimizeMode

AUTO: Settings = settings_from({"policy_mode": "auto"})
#: 1,000 examples a second on every device, however many there are: no exchange costs anything.
PERFECT = Profile(
    examples=600_000,
    first_batch=100,
    largest_batch=10_000,
    largest_local=10_000,
    step_seconds=0.0,
    example_seconds=0.001,
    network_seconds=0.0,
    bus_seconds=0.0,
    noise_first=1e6,
    noise_last=1e6,
)
#: Less and less gain from every further replica.
USUAL = Profile(
    examples=400_000,
    first_batch=64,
    largest_batch=4096,
    largest_local=256,
    step_seconds=0.02,
    example_seconds=0.001,
    network_seconds=0.08,
    bus_seconds=0.02,
    noise_first=500,
    noise_last=500,
)
APPLICATIONS: Mapping[str, Application] = {"perfect": PERFECT, "usual": USUAL}


def spec(
    count: int = 2, gpus: int = 4, *, kinds: Mapping[str, NodeKind] | None = None, **fields: Any
) -> Spec:
    """A cluster of one kind in which nothing fails."""
    return Spec(nodes=kinds or {"t4": NodeKind(count=count, gpus=gpus)}, **fields)


def arrival(name: str = "digits", at: float = 0.0, **fields: Any) -> Arrival:
    """A job that asks for one accelerator and may have up to eight."""
    made: dict[str, Any] = {
        "application": "usual",
        "wanted": 1,
        "batch": 256,
        "bounds": Bounds(min=1, max=8),
    }
    return Arrival(name=name, at_seconds=at, **(made | fields))


def simulated(
    workload: Sequence[Arrival], policy: str = "brain", cluster: Spec | None = None, **fields: Any
) -> PolicyOutcome:
    """A workload lived to its end; deciding takes no time."""
    made: dict[str, Any] = {"settings": AUTO, "mode": OptimizeMode.CLUSTER}
    return simulate(
        workload,
        cluster or spec(),
        APPLICATIONS,
        policy=policy,
        stopwatch=lambda: 0.0,
        **(made | fields),
    )


def lived(world: SimulatedCluster, policy: str) -> Iterator[SimulatedCluster]:
    """A world after each decision of a policy, until it is over."""
    governor = Direct(world, POLICIES[policy]())
    upcoming = world.next_arrival or 1.0
    while not world.over:
        governor.govern(world.advance(upcoming), lambda: 0.0)
        yield world
        upcoming = max(world.now + 60.0, 0.0 if world.present else world.next_arrival or 0.0)
