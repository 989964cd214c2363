"""What every division keeps, whatever it is asked."""

from collections import Counter

from hypothesis import given, settings

from brain.pool.allocator import (
    PROPORTIONAL,
    ClusterView,
    PoolJob,
    Round,
    RoundEffect,
    Weights,
    allocate,
)
from brain.pool.allocator.views import NODES, REPLICAS
from tests.pool.allocator.building import scenes, used

Scene = tuple[list[PoolJob], ClusterView]
some = settings(max_examples=40, deadline=None)


def free_to_change(jobs: list[PoolJob], round_: Round) -> list[PoolJob]:
    return [
        one
        for one in jobs
        if not one.pinned and round_.grants[one.key].outcome is not RoundEffect.REFUSED
    ]


@some
@given(scenes())
def test_no_node_holds_more_than_it_has(scene: Scene):
    jobs, cluster = scene

    held = used(allocate(jobs, cluster), jobs)

    assert all(held[node.name] <= node.capacity for node in cluster.nodes)


@some
@given(scenes())
def test_ill_nodes_get_nobody_new(scene: Scene):
    jobs, cluster = scene
    ill = {node.name for node in cluster.nodes if not node.healthy}

    round_ = allocate(jobs, cluster)

    for one in free_to_change(jobs, round_):
        placement = round_.grants[one.key].placement
        assert placement is None or ill.isdisjoint(placement.nodes)


@some
@given(scenes())
def test_what_a_job_gets_is_one_of_its_configurations(scene: Scene):
    jobs, cluster = scene
    kinds = {node.name: node.accelerator for node in cluster.nodes}

    round_ = allocate(jobs, cluster)

    for one in free_to_change(jobs, round_):
        at = round_.grants[one.key].placement
        if at is not None:
            rows = one.curves[at.accelerator].rows
            spread = len(set(at.nodes))
            fits = (rows[:, REPLICAS] == at.replicas) & (
                rows[:, NODES] * (rows[:, NODES] > 0) <= spread
            )
            assert fits.any()
            assert {kinds[name] for name in at.nodes} == {at.accelerator}


@some
@given(scenes())
def test_pinned_jobs_and_those_nobody_can_judge_keep_what_they_have(scene: Scene):
    jobs, cluster = scene

    round_ = allocate(jobs, cluster)

    free = {one.key for one in free_to_change(jobs, round_)}
    for one in jobs:
        assert one.key in free or round_.grants[one.key].placement == one.current


@some
@given(scenes())
def test_limits_of_tenants_hold(scene: Scene):
    jobs, cluster = scene

    round_ = allocate(jobs, cluster)

    held: Counter[str] = Counter()
    for one in free_to_change(jobs, round_):
        held[one.tenant] += round_.grants[one.key].replicas * one.gpus_per_replica
    for tenant, quota in cluster.quotas.items():
        assert quota.limit is None or held[tenant] <= quota.limit


@some
@given(scenes())
def test_the_bound_is_one(scene: Scene):
    jobs, cluster = scene

    prices = allocate(jobs, cluster, settings=Weights(exact_jobs=0))
    exact = allocate(jobs, cluster)

    tolerance = 1e-6 * max(1.0, abs(exact.bound))
    assert exact.value <= exact.bound + tolerance
    assert exact.value <= prices.bound + tolerance
    assert prices.value <= exact.bound + tolerance


@some
@given(scenes())
def test_equal_questions_get_equal_answers(scene: Scene):
    jobs, cluster = scene

    first, second = (allocate(jobs, cluster, settings=PROPORTIONAL) for _ in range(2))

    assert (first.grants, first.moves, first.prices) == (second.grants, second.moves, second.prices)


@some
@given(scenes())
def test_moves_in_their_order_never_overfill_a_node(scene: Scene):
    jobs, cluster = scene
    round_ = allocate(jobs, cluster)
    each = {one.key: one.gpus_per_replica for one in jobs}
    held: Counter[str] = Counter()
    capacity = {node.name: node.capacity for node in cluster.nodes}

    def change(places: tuple[str, ...], size: int) -> None:
        for name in places:
            held[name] += size

    for one in jobs:
        change(one.current.nodes if one.current else (), one.gpus_per_replica)
    for move in round_.moves:
        if move.lets_go_first:
            before = round_.grants[move.key].before
            change(before.nodes if before else (), -each[move.key])
    done: set[str] = {move.key for move in round_.moves if move.lets_go_first}
    finished: set[str] = set()
    for move in round_.moves:
        assert all(other in done | finished for other in move.after)
        before = round_.grants[move.key].before
        if not move.lets_go_first:
            change(before.nodes if before else (), -each[move.key])
        change(move.placement.nodes if move.placement else (), each[move.key])
        finished.add(move.key)
        assert all(held[name] <= size for name, size in capacity.items())


@some
@given(scenes())
def test_prices_of_the_last_round_lead_to_a_division_as_sound(scene: Scene):
    jobs, cluster = scene
    before = allocate(jobs, cluster)

    after = allocate(jobs, cluster, prices=before.prices)

    assert after.value <= after.bound + 1e-6 * max(1.0, abs(after.bound))
    assert all(price >= 0 for price in after.prices.accelerators.values())
