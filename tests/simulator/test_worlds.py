"""The physics of the simulated world, case by case."""

from dataclasses import replace

import pytest

from brain import errors
from brain.simulator.placing import shape
from brain.simulator.policies import Contender, Oracle
from brain.simulator.run import simulate
from brain.simulator.spec import NodeKind, NodeTrouble
from brain.simulator.world import SimulatedCluster, SimulatedEventKind
from brain.types.allocation import Bounds
from tests.simulator import building


def world(*arrivals, **fields) -> SimulatedCluster:
    made = SimulatedCluster(building.spec(**fields), arrivals, building.APPLICATIONS)
    made.advance(1.0)
    return made


def test_a_job_restarts_and_then_works_at_its_rate():
    one = world(building.arrival(application="perfect"))
    (run,) = one.present
    one.place(run, (0, 0))
    one.advance(131.0)
    assert run.done == pytest.approx((130 - 30) * 2 * 1000 * 10_100 / 10_100, rel=1e-3)


def test_a_change_of_placement_costs_a_restart_and_no_work():
    one = world(building.arrival(application="perfect"))
    (run,) = one.present
    one.place(run, (0,))
    one.advance(101.0)
    done = run.done
    one.place(run, (0, 0))
    one.advance(131.0)
    assert run.done == done
    assert run.restarts == 1
    assert [shape(stay.placement) for stay in run.stays] == [(1,)]


def test_a_lost_node_takes_what_was_not_saved():
    one = world(building.arrival(), failures=NodeTrouble(per_node_day=200, minutes=5))
    (run,) = one.present
    one.place(run, (0,))
    happened = one.advance(40_000.0)
    while not any(each.event is SimulatedEventKind.LOST for each in happened):
        happened = one.advance(40_000.0)
    assert run.lost == 1
    assert run.placement == ()
    assert run.done == run.saved
    assert run.redone > 0


def test_a_slow_node_slows_the_whole_job():
    one = world(building.arrival())
    (run,) = one.present
    one.place(run, (0, 1))
    even = one.rate(run)
    one.nodes[1].slowness = 2.0
    assert one.rate(run) == pytest.approx(even / 2)


def test_what_does_not_fit_is_no_placement():
    one = world(building.arrival(), building.arrival("other"))
    run, other = one.present
    one.place(run, (0, 0, 0))
    with pytest.raises(ValueError, match="no room"):
        one.place(other, (0, 0))


def test_a_job_has_one_kind_of_node():
    kinds = {"t4": NodeKind(count=1, gpus=4), "a100": NodeKind(count=1, gpus=4)}
    one = world(building.arrival(), kinds=kinds)
    with pytest.raises(ValueError, match="a100 and t4"):
        one.place(one.present[0], (0, 1))


def test_a_finished_job_frees_its_nodes_at_once():
    one = world(building.arrival(application="perfect", scale=0.001))
    one.place(one.present[0], (0,))
    happened = one.advance(1000.0)
    assert happened[-1].event is SimulatedEventKind.FINISHED
    assert one.now == pytest.approx(happened[-1].at_seconds + one.spec.settle_seconds)
    assert one.free() == {0: 4, 1: 4}


def test_fifo_starts_in_order_at_the_size_that_was_asked_for():
    jobs = [
        building.arrival("wide", 0, wanted=6),
        building.arrival("wider", 10, wanted=8),
        building.arrival("narrow", 20, wanted=1),
    ]
    wide, wider, narrow = building.simulated(jobs, "fifo").jobs
    assert wide.started < wide.finished < wider.started <= narrow.started
    assert len(wider.stays[0].placement) == 8


def test_tiresias_lets_the_new_go_before_those_that_had_much():
    long = building.arrival("long", 0, wanted=8, scale=60, batch=1024)
    late = building.arrival("late", 12_000, wanted=8, scale=0.2)
    first, second = building.simulated([long, late], "tiresias").jobs
    assert second.finished < first.finished
    assert first.restarts == 1


def test_optimus_gives_more_to_who_saves_most():
    jobs = [
        building.arrival("perfect", application="perfect", scale=4),
        building.arrival("usual"),
    ]
    perfect, usual = building.simulated(jobs, "optimus").jobs
    assert len(perfect.stays[0].placement) > len(usual.stays[0].placement)


def test_alone_with_a_fair_share_a_job_is_neither_better_nor_worse_off():
    job = building.arrival(bounds=Bounds(min=4, max=4), wanted=4)
    (result,) = building.simulated([job], "fifo", building.spec(1)).jobs
    waited = result.started - result.submitted
    assert result.unfairness == pytest.approx(1.0 + waited / result.alone_seconds, rel=1e-6)


def test_a_cluster_that_never_serves_a_job_is_told_and_not_waited_for():
    job = building.arrival(wanted=8, bounds=Bounds(min=8, max=8))
    troubled = building.spec(failures=NodeTrouble(per_node_day=9999, minutes=1e7))
    with pytest.raises(Exception, match="digits still waits"):
        building.simulated([job], "fifo", troubled)


def test_a_job_that_never_ends_is_told_and_not_waited_for():
    job = building.arrival(scale=1000)
    slow = replace(building.USUAL, example_seconds=100.0)
    with pytest.raises(
        errors.Undetermined, match=r"digits has 100.% of its work left after a year"
    ):
        simulate(
            [job],
            building.spec(turn_seconds=86_400.0),
            {"usual": slow},
            policy="fifo",
            settings=building.AUTO,
            stopwatch=lambda: 0.0,
        )


def test_progress_is_told_up_to_the_end():
    told: list[tuple[int, float]] = []
    simulate(
        [building.arrival(), building.arrival("other", 100)],
        building.spec(),
        building.APPLICATIONS,
        policy="fifo",
        settings=building.AUTO,
        stopwatch=lambda: 0.0,
        progress=lambda finished, now: told.append((finished, now)),
    )
    assert told[-1][0] == 2
    assert told == sorted(told)


def test_an_oracle_knows_whom_more_accelerators_serve_and_who_ends_soon():
    jobs = [
        building.arrival("scales", application="perfect", scale=3, wanted=2),
        building.arrival("short", application="usual", scale=0.2, wanted=4),
    ]
    told, asked = (building.simulated(jobs, policy) for policy in ("oracle", "fifo"))
    assert told.summary.jct_mean < asked.summary.jct_mean
    assert max(len(stay.placement) for stay in told.jobs[0].stays) > 4


def test_an_oracle_gives_nothing_where_no_node_is_left():
    contender = Contender(
        key="waits", arrived_seconds=0.0, wanted=1, sizes=(1, 2), seconds_left=lambda *_: 60.0
    )
    assert Oracle().allot([contender], []) == {}
