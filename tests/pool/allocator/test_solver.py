"""Who gets how much, and what it would have cost to get more."""

import itertools

import pytest

from brain.errors import BadInput
from brain.pool.allocator import (
    PROPORTIONAL,
    Curve,
    PoolNode,
    Quota,
    RoundEffect,
    Weights,
    allocate,
)
from tests.pool.allocator.building import cluster, job, nodes, placement, scaling

LONG, SHORT = 1e6, 36_000.0
SHORTEST_FIRST = Weights(power=1.0, unknown_power=1.0, crowding=1.0, newcomers=0.0)


def test_two_equal_jobs_share_equally():
    round_ = allocate([job("a"), job("b")], cluster(nodes("v100", 1)))

    assert [grant.replicas for grant in round_.grants.values()] == [4, 4]


def test_a_short_job_gets_more_than_a_long_one():
    jobs = [job("long", remaining_seconds=LONG), job("short", remaining_seconds=SHORT)]

    grants = allocate(jobs, cluster(nodes("v100", 1)), settings=SHORTEST_FIRST).grants

    assert grants["short"].replicas > grants["long"].replicas


def test_without_declarations_a_young_job_counts_as_short():
    jobs = [
        job("old", remaining_seconds=None, attained_seconds=LONG),
        job("young", remaining_seconds=None),
    ]

    grants = allocate(jobs, cluster(nodes("v100", 1)), settings=SHORTEST_FIRST).grants

    assert grants["young"].replicas > grants["old"].replicas


def test_a_class_of_priority_comes_first():
    jobs = [job("low", [8]), job("high", [8], priority=1)]

    grants = allocate(jobs, cluster(nodes("v100", 1))).grants

    assert (grants["low"].outcome, grants["high"].outcome) == (
        RoundEffect.WAITS,
        RoundEffect.STARTS,
    )


def test_a_job_that_scales_badly_leaves_accelerators_to_one_that_scales_well():
    sizes = [1, 2, 3, 4, 5, 6, 7]
    jobs = [job("flat", sizes, exponent=0.1), job("steep", sizes, exponent=1.0)]

    grants = allocate(jobs, cluster(nodes("v100", 1))).grants

    assert grants["steep"].replicas > grants["flat"].replicas


def test_each_job_goes_to_the_type_that_serves_it_best():
    both = {"v100": scaling([1], rate=10), "a100": scaling([1], rate=10)}
    fond = {"v100": scaling([1], rate=10), "a100": scaling([1], rate=30)}
    jobs = [job("either", curves=both), job("fond", curves=fond)]

    grants = allocate(jobs, cluster(nodes("v100", 1, 1), nodes("a100", 1, 1))).grants

    assert grants["fond"].placement == placement("a100", "0")
    assert grants["either"].placement == placement("v100", "0")


def test_a_rigid_job_gets_all_or_nothing():
    grants = allocate([job("rigid", [6]), job("small", [1, 2])], cluster(nodes("v100", 1))).grants

    assert (grants["rigid"].replicas, grants["small"].replicas) == (6, 2)


def test_a_running_job_is_not_disturbed_for_a_little():
    here = placement("v100", *["0"] * 5)
    settled = job("settled", [5, 6], current=here, restart_seconds=60.0, exponent=0.3)

    grant = allocate([settled], cluster(nodes("v100", 1))).grants["settled"]

    assert grant.outcome is RoundEffect.KEEPS


def test_a_long_job_grows_into_idle_accelerators_however_long_its_restart_takes():
    here = placement("v100", *["0"] * 8)
    long = job("long", [8, 16], current=here, restart_seconds=250.0, remaining_seconds=1e6)

    grant = allocate([long], cluster(nodes("v100", 2))).grants["long"]

    assert grant.replicas == 16


def test_a_job_of_unknown_length_grows_though_it_has_just_begun():
    here = placement("v100", "0")
    new = job("new", [1, 2], current=here, restart_seconds=120.0, remaining_seconds=None)

    grant = allocate([new], cluster(nodes("v100", 1))).grants["new"]

    assert grant.replicas == 2


def test_a_restart_that_costs_nothing_is_made_for_a_little():
    cheap = job("cheap", [5, 6], current=placement("v100", *["0"] * 5), restart_seconds=0.0)

    grant = allocate([cheap], cluster(nodes("v100", 1))).grants["cheap"]

    assert (grant.outcome, grant.replicas) == (RoundEffect.GROWS, 6)


def test_a_limit_is_never_passed_though_accelerators_idle():
    jobs = [job("a", tenant="red"), job("b", tenant="red")]

    round_ = allocate(jobs, cluster(nodes("v100", 2), red=Quota(limit=3)))

    assert sum(round_.used.values()) == 3
    assert round_.prices.tenants["red"] > 0


def test_a_guarantee_is_kept_against_jobs_that_are_worth_more():
    rich = [job(f"rich-{index}", priority=5) for index in range(4)]
    poor = [job("poor", tenant="blue")]

    round_ = allocate(rich + poor, cluster(nodes("v100", 1), blue=Quota(guaranteed=4)))

    assert round_.grants["poor"].replicas == 4
    assert round_.short == {}


def test_what_a_guarantee_lacks_is_said():
    pinned = job("pinned", [6], current=placement("v100", *["0"] * 6), pinned=True)
    owed = job("owed", [4], tenant="blue")

    round_ = allocate([pinned, owed], cluster(nodes("v100", 1), blue=Quota(guaranteed=4)))

    assert round_.short == {"blue": 4}


def test_where_accelerators_idle_they_cost_nothing():
    round_ = allocate([job("only", [1])], cluster(nodes("v100", 4)))

    assert round_.prices.accelerators["v100"] == pytest.approx(0, abs=1e-3)


def test_a_scarcer_type_costs_more():
    both = {"v100": scaling([1, 2, 4]), "a100": scaling([1, 2, 4], rate=200)}
    jobs = [job(f"job-{index}", curves=both) for index in range(20)]

    prices = allocate(jobs, cluster(nodes("v100", 4), nodes("a100", 1))).prices.accelerators

    assert prices["a100"] > prices["v100"]


def test_the_division_is_the_best_of_all():
    sizes = [1, 2, 3, 4, 6]
    jobs = [job(f"job-{index}", sizes, exponent=0.5 + 0.1 * index) for index in range(4)]
    where = cluster(nodes("v100", 1))
    round_ = allocate(jobs, where)

    def worth(one_index: int, size: int) -> float:
        return 0.0 if size == 0 else float(size ** (0.5 * (0.5 + 0.1 * one_index)))

    best = max(
        sum(worth(index, size) for index, size in enumerate(taken))
        for taken in itertools.product([0, *sizes], repeat=len(jobs))
        if sum(taken) <= 8
    )
    got = sum(worth(index, round_.grants[one.key].replicas) for index, one in enumerate(jobs))
    assert got == pytest.approx(best)
    assert round_.gap < 1e-4


def test_prices_alone_come_close_to_the_best():
    jobs = [
        job(f"job-{index}", [1, 2, 4, 8, 16], exponent=0.5 + index / 400) for index in range(150)
    ]

    round_ = allocate(jobs, cluster(nodes("v100", 32)), settings=Weights(exact_jobs=0))

    assert round_.gap < 0.002


def test_prices_of_the_last_round_are_where_the_next_begins():
    jobs = [job(f"job-{index}", exponent=0.5 + index / 100) for index in range(40)]
    where = cluster(nodes("v100", 8))
    last = allocate(jobs, where, settings=Weights(exact_jobs=0))

    again = allocate(jobs, where, prices=last.prices, settings=Weights(exact_jobs=0))

    assert again.bound <= last.bound * (1 + 1e-9)


def test_a_grant_names_the_next_best_and_who_has_it():
    jobs = [job("winner", [8], priority=1), job("loser", [8])]

    grant = allocate(jobs, cluster(nodes("v100", 1))).grants["loser"]

    assert grant.lost_to == "winner"
    assert grant.next_best is not None
    assert grant.next_best.replicas == 8
    assert "winner" in grant.reason


def test_caution_counts_what_is_uncertain_less():
    curve = Curve.of([1, 2], [100.0, 190.0], deviation=[0.0, 0.9])
    jobs = [job("unsure", curves={"v100": curve})]
    rival = [job("rival", [1])]
    where = cluster(nodes("v100", 1, 2))

    bold = allocate(jobs, where).grants["unsure"].replicas
    careful = allocate(jobs + rival, where, settings=Weights(caution=1.0)).grants

    assert (bold, careful["unsure"].replicas) == (2, 1)


def test_proportional_fairness_admits_before_it_grows():
    jobs = [job(f"job-{index}", remaining_seconds=None) for index in range(8)]

    round_ = allocate(jobs, cluster(nodes("v100", 1)), settings=PROPORTIONAL)

    assert {grant.replicas for grant in round_.grants.values()} == {1}


def test_two_jobs_of_one_name_are_refused():
    with pytest.raises(BadInput, match="job 'a' occurs twice"):
        allocate([job("a"), job("a")], cluster(nodes("v100", 1)))


def test_a_node_below_nothing_is_refused():
    with pytest.raises(BadInput, match="capacity -1"):
        allocate([], cluster([PoolNode(name="n", accelerator="v100", capacity=-1)]))


def test_a_guarantee_above_the_limit_is_refused():
    with pytest.raises(BadInput, match="between 0 and the limit"):
        allocate([], cluster(nodes("v100", 1), red=Quota(guaranteed=5, limit=2)))
