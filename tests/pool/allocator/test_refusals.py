"""What cannot be judged keeps what it has, and hears why."""

import math

import pytest

from brain.pool.allocator import Curve, PoolJob, Quota, Round, RoundEffect, allocate
from tests.pool.allocator.building import cluster, job, nodes, placement, scaling


def refusal(view: PoolJob, **quotas: Quota) -> str:
    round_: Round = allocate([view, job("other")], cluster(nodes("v100", 2), **quotas))
    grant = round_.grants[view.key]
    assert grant.outcome is RoundEffect.REFUSED
    assert round_.grants["other"].replicas == 8
    return grant.reason


def test_a_job_without_configurations():
    assert "no configuration" in refusal(job("new", curves={}))


@pytest.mark.parametrize("rate", [math.nan, math.inf, 0.0, -1.0])
def test_a_goodput_that_means_nothing(rate: float):
    assert "not finite" in refusal(job("bad", curves={"v100": Curve.of([1, 2], [100.0, rate])}))


@pytest.mark.parametrize(
    "field", ["attained_seconds", "waited_seconds", "age_seconds", "restart_seconds"]
)
def test_seconds_that_mean_nothing(field: str):
    assert f"{field} is nan" in refusal(job("bad", **{field: math.nan}))


def test_a_remaining_time_that_is_not_a_number():
    assert "use None" in refusal(job("bad", remaining_seconds=math.nan))


def test_a_job_larger_than_the_cluster():
    assert "larger than the cluster" in refusal(job("huge", [32]))


def test_a_replica_larger_than_every_node():
    assert "larger than the cluster" in refusal(job("wide", [1], gpus_per_replica=16))


def test_a_job_larger_than_its_tenants_limit():
    assert "its tenant red may have 3" in refusal(
        job("much", [4], tenant="red"), red=Quota(limit=3)
    )


def test_a_job_for_accelerators_that_are_not_here():
    assert "the cluster has v100" in refusal(job("other-kind", curves={"tpu": scaling([1])}))


def test_a_cluster_without_healthy_nodes():
    grant = allocate([job("a")], cluster()).grants["a"]

    assert "no healthy accelerator" in grant.reason


def test_a_curve_that_breaks_while_its_job_runs_takes_nothing_from_it():
    at = placement("v100", "0", "0")
    broken = job("broken", curves={"v100": Curve.of([2], [math.nan])}, current=at)

    round_ = allocate([broken, job("greedy", [1, 8])], cluster(nodes("v100", 1)))

    assert round_.grants["broken"].placement == at
    assert round_.grants["greedy"].replicas == 1


def test_a_pinned_job_keeps_what_it_has_whatever_it_is_worth():
    at = placement("v100", *["0"] * 8)

    round_ = allocate(
        [job("pinned", current=at, pinned=True), job("better", priority=9)],
        cluster(nodes("v100", 1)),
    )

    assert round_.grants["pinned"].placement == at
    assert round_.grants["better"].outcome is RoundEffect.WAITS


def test_one_configuration_is_enough():
    assert allocate([job("one", [2])], cluster(nodes("v100", 1))).grants["one"].replicas == 2


def test_no_jobs_make_an_empty_round():
    round_ = allocate([], cluster(nodes("v100", 1)))

    assert (round_.grants, round_.moves, round_.gap) == ({}, (), 0.0)
