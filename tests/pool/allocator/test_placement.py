"""Which nodes, and who is moved for whom."""

from dataclasses import replace

import pytest

from brain.pool.allocator import Curve, RoundEffect, Weights, allocate
from brain.pool.allocator.placement import FreeAccelerators, Need
from brain.pool.allocator.utility import ranked
from tests.pool.allocator.building import cluster, job, nodes, placement, scaling


def spread(rows: list[tuple[int, int, float]]) -> dict[str, Curve]:
    """A curve of (replicas, nodes, goodput)."""
    replicas, over, rate = zip(*rows, strict=True)
    return {"v100": Curve.of(replicas, rate, nodes=over)}


def where(round_: object, key: str) -> list[int]:
    """How many replicas are on each of a job's nodes, descending."""
    found = round_.grants[key].placement  # type: ignore[attr-defined]
    return sorted((found.nodes.count(name) for name in set(found.nodes)), reverse=True)


def test_a_large_job_takes_whole_nodes():
    round_ = allocate([job("small", [3]), job("large", [16])], cluster(nodes("v100", 3)))

    assert where(round_, "large") == [8, 8]
    assert where(round_, "small") == [3]


def test_a_large_job_stays_within_one_rack():
    racks = cluster(nodes("v100", 6, rack=3))
    settled = job("settled", [8], current=placement("v100", *["0"] * 8))

    grant = allocate([settled, job("large", [24])], racks).grants["large"]

    assert grant.placement is not None
    assert {node for node in grant.placement.nodes} == {"v100-3", "v100-4", "v100-5"}


def test_a_job_too_large_for_a_rack_takes_neighbouring_ones():
    floor = FreeAccelerators(
        [
            replace(
                node, path=("zone", "spine-a" if index < 4 else "spine-b", f"rack-{index // 2}")
            )
            for index, node in enumerate(nodes("v100", 8))
        ]
    )
    floor.place(Need("v100", 8, 1))

    found = floor.place(Need("v100", 32, 1))

    assert found is not None
    assert set(found.nodes) == {"v100-4", "v100-5", "v100-6", "v100-7"}


def test_small_jobs_fill_a_node_before_they_begin_another():
    jobs = [job(f"job-{index}", [2]) for index in range(4)]

    round_ = allocate(jobs, cluster(nodes("v100", 3)))

    assert len({node for grant in round_.grants.values() for node in grant.placement.nodes}) == 1  # type: ignore[union-attr]


def test_who_keeps_its_size_keeps_its_nodes():
    at = placement("v100", "2", "2")
    jobs = [job("settled", [2], current=at), job("new", [4])]

    assert allocate(jobs, cluster(nodes("v100", 3))).grants["settled"].placement == at


def test_who_grows_grows_where_it_is():
    growing = job("growing", [2, 8], current=placement("v100", "1", "1"), restart_seconds=0.0)

    grant = allocate([growing], cluster(nodes("v100", 3))).grants["growing"]

    assert grant.placement == placement("v100", *["1"] * 8)


def test_the_replicas_of_one_node_stay_together():
    round_ = allocate([job("wide", [3], gpus_per_replica=4)], cluster(nodes("v100", 2)))

    assert where(round_, "wide") == [2, 1]


def test_a_shape_that_is_faster_is_taken():
    jobs = [job("open", curves=spread([(4, 1, 300.0), (4, 4, 390.0)]))]

    assert where(allocate(jobs, cluster(nodes("v100", 4))), "open") == [1, 1, 1, 1]


def test_where_the_best_shape_finds_no_room_the_next_best_is_taken():
    open_ = job("open", curves=spread([(4, 1, 300.0), (4, 4, 390.0)]))
    rigid = [
        job(f"rigid-{index}", [8], pinned=True, current=placement("v100", *[str(index)] * 8))
        for index in range(2)
    ]

    assert where(allocate([open_, *rigid], cluster(nodes("v100", 3))), "open") == [4]


def test_what_fits_no_shape_is_scattered():
    rest = [
        job(f"rest-{index}", [5], pinned=True, current=placement("v100", *[str(index)] * 5))
        for index in range(3)
    ]

    assert where(allocate([*rest, job("late", [8])], cluster(nodes("v100", 3))), "late") == [
        3,
        3,
        2,
    ]


def test_small_jobs_are_moved_for_a_large_one_where_that_pays():
    small = [
        job(f"small-{index}", [1], current=placement("v100", str(index)), restart_seconds=1.0)
        for index in range(2)
    ]
    large = job("large", curves=spread([(8, 1, 800.0), (8, 2, 100.0)]), priority=1)

    round_ = allocate([*small, large], cluster(nodes("v100", 2)), settings=Weights(movable=0.5))

    assert where(round_, "large") == [8]
    assert [round_.grants[f"small-{i}"].outcome for i in range(2)].count(RoundEffect.MOVES) == 1


def test_a_bonus_for_who_runs_goes_with_it():
    small = [
        job(f"small-{index}", [1], current=placement("v100", str(index)), restart_seconds=1.0)
        for index in range(2)
    ]
    large = job("large", curves=spread([(8, 1, 800.0), (8, 2, 100.0)]), priority=1)
    kept = Weights(utility=lambda terms, weights: ranked(terms, weights) + 9 * terms.runs)

    round_ = allocate([*small, large], cluster(nodes("v100", 2)), settings=replace(kept, movable=1))

    assert where(round_, "large") == [8]


def test_nobody_is_moved_for_less_than_it_loses():
    small = [
        job(f"small-{index}", [1], current=placement("v100", str(index)), restart_seconds=300.0)
        for index in range(2)
    ]
    large = job("large", curves=spread([(7, 1, 701.0), (7, 2, 700.0)]))
    tight = cluster(nodes("v100", 2))

    round_ = allocate([*small, large], tight, settings=Weights(movable=0.5))

    assert {round_.grants[f"small-{i}"].outcome for i in range(2)} == {RoundEffect.KEEPS}


def test_a_job_leaves_a_node_that_is_ill():
    ill, *well = nodes("v100", 2)
    jobs = [job("caught", [4], current=placement("v100", *["0"] * 4))]

    grant = allocate(jobs, cluster([replace(ill, healthy=False), *well])).grants["caught"]

    assert (grant.outcome, grant.placement) == (RoundEffect.MOVES, placement("v100", *["1"] * 4))


def test_a_move_waits_for_those_who_make_room():
    leaving = job("leaving", [2, 8], current=placement("v100", *["0"] * 8), restart_seconds=0.0)
    coming = job("coming", [6], priority=3)

    round_ = allocate([coming, leaving], cluster(nodes("v100", 1)))

    assert [(move.key, move.after) for move in round_.moves] == [
        ("leaving", ()),
        ("coming", ("leaving",)),
    ]


def test_jobs_that_wait_for_each_other_do_not_wait_for_ever():
    fast = {"v100": scaling([8], rate=1), "a100": scaling([8], rate=50)}
    slow = {"v100": scaling([8], rate=50), "a100": scaling([8], rate=1)}
    jobs = [
        job("one", curves=fast, current=placement("v100", *["0"] * 8), restart_seconds=1.0),
        job("other", curves=slow, current=placement("a100", *["0"] * 8), restart_seconds=1.0),
    ]

    moves = allocate(jobs, cluster(nodes("v100", 1), nodes("a100", 1))).moves

    assert [move.lets_go_first for move in moves] == [False, True]


@pytest.mark.parametrize("sizes", [[8], [16], [24]])
def test_what_idles_is_used_though_it_is_in_pieces(sizes: list[int]):
    held = [
        job(f"held-{index}", [4], current=placement("v100", *[str(index)] * 4), pinned=True)
        for index in range(8)
    ]

    round_ = allocate([*held, job("late", sizes)], cluster(nodes("v100", 8)))

    assert round_.grants["late"].replicas == sizes[0]
