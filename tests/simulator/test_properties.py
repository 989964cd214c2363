"""Whatever the workload and whatever fails: capacity is never exceeded, work is conserved, and the
same seed gives the same world to the last digit."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brain.simulator.applications import progress
from brain.simulator.placing import Placement, place, shape
from brain.simulator.policies import POLICIES
from brain.simulator.service import Service
from brain.simulator.spec import NodeKind, NodeTrouble, Spec
from brain.simulator.workload import Arrival
from brain.simulator.world import SimulatedCluster, SimulatedJob
from brain.types.allocation import Bounds
from brain.types.job import OptimizeMode
from tests.simulator import building

arrivals = st.builds(
    building.arrival,
    at=st.floats(0, 5_000),
    application=st.sampled_from(["perfect", "usual"]),
    wanted=st.integers(1, 6),
    batch=st.sampled_from([64, 300, 1000]),
    bounds=st.integers(1, 3).map(lambda unit: Bounds(min=unit, max=6 * unit, unit=unit)),
    scale=st.floats(0.05, 2),
)


def named(jobs: list[Arrival]) -> list[Arrival]:
    return [replace(job, name=f"job-{index}") for index, job in enumerate(jobs)]


workloads = st.lists(arrivals, min_size=1, max_size=12).map(named)
specs = st.builds(
    lambda counts, failures, slow: Spec(
        nodes={
            "t4": NodeKind(count=counts[0], gpus=4),
            "a100": NodeKind(count=counts[1], gpus=8, speed=3.0),
        },
        failures=NodeTrouble(per_node_day=failures, minutes=10),
        stragglers=NodeTrouble(per_node_day=slow, minutes=30, factor=2),
    ),
    st.tuples(st.integers(1, 4), st.integers(3, 4)),
    st.sampled_from([0.0, 5.0, 40.0]),
    st.sampled_from([0.0, 20.0]),
)
policies = st.sampled_from(sorted(POLICIES))
often = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])


@often
@given(workloads, specs, policies, st.integers(0, 3))
def test_no_node_ever_serves_more_than_it_has(
    workload: list[Arrival], spec: Spec, policy: str, seed: int
) -> None:
    world = SimulatedCluster(spec, workload, building.APPLICATIONS, seed=seed)
    for seen in building.lived(world, policy):
        taken = Counter(node for run in seen.present for node in run.placement)
        assert all(count <= seen.nodes[node].capacity for node, count in taken.items())
        assert all(seen.nodes[node].up for node in taken)


@often
@given(workloads, specs, policies, st.integers(0, 3))
def test_work_done_is_work_asked_for_and_work_lost(
    workload: list[Arrival], spec: Spec, policy: str, seed: int
) -> None:
    even = Spec(nodes=spec.nodes, failures=spec.failures)
    world = SimulatedCluster(even, workload, building.APPLICATIONS, seed=seed)
    for _ in building.lived(world, policy):
        pass
    for run in world.runs:
        done = sum(
            (stay.ended - stay.stepped)
            * progress(
                run.application,
                world.device(stay.kind),
                shape(stay.placement),
                run.arrival.batch,
                0.0,
            )
            for stay in run.stays
        )
        assert done == pytest.approx(run.work + run.redone, rel=1e-6)


@often
@given(workloads, specs, policies, st.integers(0, 3))
def test_time_held_is_the_time_of_all_stays(
    workload: list[Arrival], spec: Spec, policy: str, seed: int
) -> None:
    world = SimulatedCluster(spec, workload, building.APPLICATIONS, seed=seed)
    for _ in building.lived(world, policy):
        pass
    for run in world.runs:
        held = sum((stay.ended - stay.began) * len(stay.placement) for stay in run.stays)
        assert run.held == pytest.approx(held, rel=1e-9, abs=1e-6)
        assert run.finished_at is not None
        assert run.finished_at > run.arrival.at_seconds


@often
@given(workloads, specs, policies, st.integers(0, 3))
def test_the_same_seed_gives_the_same_world(
    workload: list[Arrival], spec: Spec, policy: str, seed: int
) -> None:
    one, other = (building.simulated(workload, policy, spec, seed=seed) for _ in range(2))
    assert one == other


class Watched(SimulatedCluster):
    """A world that looks at its capacity whenever somebody places a job."""

    def place(self, run: SimulatedJob, placement: Placement) -> None:
        super().place(run, placement)
        taken = Counter(node for each in self.present for node in each.placement)
        assert all(count <= self.nodes[node].capacity for node, count in taken.items())
        assert all(run.arrival.bounds.allow(len(r.placement)) for r in [run] if r.placement)


@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(workloads, specs, st.integers(0, 3))
def test_brain_keeps_to_capacity_bounds_and_units_too(
    workload: list[Arrival], spec: Spec, seed: int
) -> None:
    world = Watched(spec, workload, building.APPLICATIONS, seed=seed)
    service = Service(world, building.AUTO, mode=OptimizeMode.CLUSTER, seed=seed, noise=0.02)
    upcoming = world.next_arrival or 1.0
    while not world.over and world.now < 200_000:
        service.govern(world.advance(upcoming), lambda: 0.0)
        upcoming = max(world.now + 60.0, 0.0 if world.present else world.next_arrival or 0.0)
    assert world.over


@given(st.dictionaries(st.integers(0, 20), st.integers(0, 8), min_size=1), st.integers(1, 60))
def test_a_placement_is_whole_or_there_is_none(free: dict[int, int], wanted: int) -> None:
    found = place(free, wanted)
    if found is None:
        assert sum(free.values()) < wanted
    else:
        assert len(found) == wanted
        assert all(free[node] >= count for node, count in Counter(found).items())


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 24))
def test_an_empty_cluster_is_filled_node_by_node(nodes: int, gpus: int, wanted: int) -> None:
    found = place(dict.fromkeys(range(nodes), gpus), wanted)
    if found is not None:
        assert len(set(found)) == -(-wanted // gpus)
