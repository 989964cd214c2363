"""What a replica should reserve, from what it used, with the reason; bad input changes nothing."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain import wire
from brain.estimates.roles import Host
from brain.estimates.usage import Used, folded
from brain.models.resources import host_memory
from brain.models.resources.advice import RoleSigns, Starved, advise
from brain.models.resources.server_memory import Forecast
from brain.models.resources.use import MIB, MemoryKill, QuotaStop, RoleUse
from brain.types.advice import AmountAdvice, ResourceAdvice, Starvation
from brain.types.estimate import Band
from brain.types.resources import NodeName, Resources
from brain.types.telemetry import ReplicaReading
from tests import builders

GIB, HOUR, DAY = 2**30, 3600.0, 24 * 3600.0


def seen(millis: float = 900.0, memory: float = 2.0 * GIB, *, hours: int = 48) -> RoleUse:
    """A worker that used as much at each hour."""
    use = RoleUse(role="worker", cpu_limit_millis=8000, memory_limit_bytes=16 * GIB)
    for hour in range(hours + 1):
        use = use.with_reading(at_seconds=hour * HOUR, cpu_millis=(millis,), memory_bytes=(memory,))
    return replace(use, read_seconds=hours * HOUR, replica_seconds=hours * HOUR)


def asked(use: RoleUse, *, now_seconds: float = 48 * HOUR, **fields: Any) -> ResourceAdvice:
    signs = {"replicas": 1, "coupled": True, "reserved": Resources()} | fields
    found = advise(use, RoleSigns(**signs), now_seconds=now_seconds)
    assert found is not None
    return found


def cpu(use: RoleUse, **fields: Any) -> AmountAdvice:
    found = asked(use, **fields).cpu
    assert found is not None
    return found


def memory(use: RoleUse, **fields: Any) -> AmountAdvice:
    found = asked(use, **fields).memory
    assert found is not None
    return found


def test_nothing_is_advised_where_nothing_was_measured():
    assert (
        advise(
            RoleUse(role="ps"),
            RoleSigns(replicas=1, coupled=False, reserved=Resources()),
            now_seconds=0,
        )
        is None
    )


def test_a_reservation_that_is_far_too_large_falls_to_use_with_a_margin():
    found = cpu(seen(900), reserved=Resources(cpu_millis=8000))
    assert 1000 <= found.target <= 1100
    assert found.reserved_unused > 0.85
    assert found.changes


def test_a_guess_of_cpu_falls_although_it_is_near_but_not_for_a_tenth():
    near, nearest = Resources(cpu_millis=1300), Resources(cpu_millis=1100)
    assert not cpu(seen(900), reserved=near).changes
    assert cpu(seen(900), reserved=near, guessed=True).target < 1200
    assert not cpu(seen(900), reserved=nearest, guessed=True).changes


def test_a_reservation_that_is_near_stays():
    found = asked(seen(), reserved=Resources(cpu_millis=1100, memory_bytes=5 * GIB // 2))
    assert found.cpu is not None
    assert found.memory is not None
    assert not found.cpu.changes
    assert not found.memory.changes


def test_memory_is_15_percent_above_the_highest_use_not_above_its_bucket():
    found = memory(seen(memory=1.01 * 2 * GIB))
    assert found.target == pytest.approx(1.15 * 1.01 * 2 * GIB)
    before_the_field = replace(seen(memory=1.01 * 2 * GIB), most_bytes=0.0)
    assert memory(before_the_field).target == pytest.approx(1.15 * 1.01 * 2 * GIB, rel=0.05)


def test_each_replica_that_waits_for_none_tells_how_much_more_may_come():
    def told(replicas: int) -> RoleUse:
        use = RoleUse(role="worker")
        for second in range(0, 601, 5):
            use = use.with_reading(
                at_seconds=second,
                cpu_millis=replicas * (900.0,),
                memory_bytes=replicas * (2.0 * GIB,),
            )
        return use

    one, many = memory(told(1)), memory(told(30))
    assert one.target == many.target
    assert one.high > 3 * one.target
    assert many.high < 1.11 * many.target
    assert not replace(told(1), read_seconds=310, replica_seconds=310).explored
    assert replace(told(2), read_seconds=310, replica_seconds=620).explored


def test_bounds_hold_the_target_and_are_wider_the_less_was_seen():
    little, much = cpu(seen(hours=1)), cpu(seen(hours=48))
    assert little.low <= little.target <= little.high
    assert little.high / little.low > 3 * much.high / much.low


def test_ranks_that_wait_for_each_other_get_more_than_those_that_do_not():
    use = seen(900)
    for millis in (900.0,) * 100 + (3000.0,):
        use = use.with_reading(at_seconds=49 * HOUR, cpu_millis=(millis,), memory_bytes=(GIB,))
    assert cpu(use, replicas=64).target > 2 * cpu(use, coupled=False).target


def test_use_at_its_limit_hides_the_need():
    found = cpu(replace(seen(1950), cpu_limit_millis=2000))
    assert found.target >= 3000
    assert "so the need is unknown" in found.reason


def test_no_more_is_advised_than_a_node_has_and_what_would_be_better_is_said():
    found = memory(
        seen(memory=12.0 * GIB), largest=Resources(cpu_millis=8000, memory_bytes=8 * GIB)
    )
    assert found.target == 8 * GIB
    assert found.uncapped > 13 * GIB
    assert "no node has more than 8 GiB" in found.reason


def killed(*hours: float, limit: float = 4.0 * GIB) -> RoleUse:
    kills = tuple(
        MemoryKill(epoch=1 + at, at_seconds=hour * HOUR, limit_bytes=limit)
        for at, hour in enumerate(hours)
    )
    return replace(seen(memory=1.0 * GIB), kills=kills)


def test_memory_that_ran_out_is_raised_and_not_lowered_again_for_three_half_lives():
    assert memory(killed(47)).target == pytest.approx(4.8 * GIB)
    assert memory(killed(0), now_seconds=71 * HOUR).target == pytest.approx(4.8 * GIB)
    assert memory(killed(0), now_seconds=73 * HOUR).target < 1.3 * GIB


def test_memory_that_ran_out_a_fourth_time_in_a_day_is_for_a_person():
    assert asked(killed(45, 46, 47)).memory_unresolved == ""
    found = asked(killed(44, 45, 46, 47))
    assert "ran out 4 times within 24 h" in found.memory_unresolved
    assert found.reason == found.memory_unresolved


def test_an_earlier_run_that_ran_out_counts_for_the_level_and_not_for_the_day():
    mine = RoleUse(role="worker").inheriting(killed(44, 45, 46, 47), "before")
    found = asked(mine)
    assert found.memory_unresolved == ""
    assert found.memory is not None
    assert found.memory.target == pytest.approx(4.8 * GIB)


def test_a_pause_is_no_time_that_a_run_was_read_for():
    use = RoleUse(role="worker")
    for second in (0, 5, 10, 3 * DAY, 3 * DAY + 5):
        use = use.with_reading(at_seconds=second, cpu_millis=(500.0,), memory_bytes=(GIB,))
    assert use.days * DAY == 10 + 120 + 5


def second_run(seconds: int, memory: float, *, rise: float = 1.5) -> RoleUse:
    """So many seconds of a run whose script used 4 CPUs before, and by ``rise`` more memory than
    its first minutes' 2 GiB.
    """
    first = RoleUse(role="worker")
    for second in range(0, 1200, 5):
        held = 2.0 * GIB * (rise if second > 600 else 1)
        first = first.with_reading(at_seconds=second, cpu_millis=(4000.0,), memory_bytes=(held,))
    mine = RoleUse(role="worker").inheriting(first, "before")
    for second in range(0, seconds, 5):
        at = 48 * HOUR + second
        mine = mine.with_reading(at_seconds=at, cpu_millis=(500.0,), memory_bytes=(memory,))
    return mine


def test_five_minutes_of_a_run_replace_what_earlier_ones_used():
    assert 4500 < cpu(second_run(60, GIB)).target < 5000
    assert cpu(second_run(310, GIB)).target < 650


def test_memory_rises_as_in_earlier_runs():
    less = memory(second_run(310, GIB), reserved=Resources(memory_bytes=4 * GIB), guessed=True)
    assert less.target == less.high == pytest.approx(1.5 * 1.15 * GIB)
    more = memory(second_run(310, 3.0 * GIB), reserved=Resources(memory_bytes=4 * GIB))
    assert more.target == pytest.approx(4.5 * 1.15 * GIB)


def test_until_then_memory_is_that_of_earlier_runs():
    assert memory(second_run(200, GIB)).target > 3 * 1.15 * GIB


def test_a_quota_that_stops_a_replica_now_and_then_rises_by_as_little():
    full = replace(seen(1950), cpu_limit_millis=2000)
    some = replace(full, throttled=0.2)
    assert cpu(some).target == pytest.approx(1.15 * 1.05 * 1950, rel=0.05)
    assert cpu(replace(full, throttled=1.0)).target == 3000


def test_starved_loaders_get_the_processor_from_which_loading_hides():
    starved = Starved(of=Starvation.CPU, because="workers wait", loader_millis=5000)
    found = asked(replace(seen(990), cpu_limit_millis=1000), starved=starved)
    assert found.cpu is not None
    assert found.cpu.target == 5000
    assert found.reason == "workers wait"


def test_a_leak_says_how_long_memory_lasts():
    lasts = Band(value=1800, low=1200, high=2400)
    assert "memory leaks: it runs out in 30 min" in memory(seen(), lasts_seconds=lasts).reason


def test_a_start_that_levels_off_is_no_leak():
    filled = [GIB * (1 - 0.9**minute) for minute in range(30)]
    assert host_memory.time_left(filled, every_seconds=60, limit_bytes=1.2 * GIB) is None


def test_a_leak_that_leaves_hours_is_not_told_yet():
    grown = [GIB + minute * 2 * MIB for minute in range(30)]
    assert host_memory.time_left(grown, every_seconds=60, limit_bytes=2.0 * GIB) is None


def test_a_leak_is_told_with_its_band():
    grown = [GIB + minute * 20 * MIB for minute in range(30)]
    found = host_memory.time_left(grown, every_seconds=60, limit_bytes=2.0 * GIB)
    assert found is not None
    assert found.low <= found.value <= found.high
    assert found.value == pytest.approx((1024 - 29 * 20) / 20 * 60, rel=0.05)


#: Figures that a broken counter, a wrong unit or a clock may bring.
absurd = st.integers(min_value=-(2**62), max_value=2**62)


@given(
    cpu_millis=absurd,
    memory_bytes=absurd,
    capacity=st.integers(min_value=0, max_value=2**40),
    seconds=st.integers(min_value=-(10**6), max_value=10**6),
)
def test_no_reading_breaks_a_histogram(
    cpu_millis: int, memory_bytes: int, capacity: int, seconds: int
):
    world = builders.world()
    before = folded(Used(), [builders.host(n) for n in range(20)], world)
    odd = builders.host(
        21,
        measured_at=builders.at(seconds),
        job_cpu_millis=cpu_millis,
        job_memory_bytes=memory_bytes,
        cpu_capacity_millis=capacity,
        memory_capacity_bytes=capacity,
    )
    after = folded(before, [odd], world)
    stored = wire.decode(wire.encode(after), Used)
    (use,) = stored.roles
    assert all(weight >= 0 for weight in (*use.cpu.weights, *use.memory.weights))
    assert sum(use.cpu.weights) <= 21
    good = 0 <= cpu_millis <= 8 * capacity and 0 <= memory_bytes <= 8 * capacity
    assert after.rejected == (not good)
    assert bool(after.rejected_because) == (not good)
    if not good:
        assert use == before.roles[0]


def test_a_counter_that_began_anew_is_told_and_counted():
    after = folded(
        Used(), [builders.host(0, job_cpu_millis=-5), builders.host(1)], builders.world()
    )
    assert after.rejected == 1
    assert after.rejected_because == "use on laptop is negative, because a counter restarted"


def test_roles_that_share_a_node_cannot_be_told_apart_and_that_is_said():
    hosts = {NodeName("laptop"): None}
    after = folded(Used(), [builders.host(0)], builders.world(), hosts=hosts)
    assert after.roles == ()
    assert "several roles share laptop" in after.rejected_because


def test_a_limit_below_the_request_is_what_holds_use_down():
    found = cpu(replace(seen(490), cpu_limit_millis=500), reserved=Resources(cpu_millis=2000))
    assert found.target == 750
    assert "use reached the limit of 0.5 CPUs" in found.reason


def test_a_role_that_vanishes_keeps_its_histograms():
    servers = {NodeName("laptop"): Host("ps", 1)}
    before = folded(Used(), [builders.host(n) for n in range(9)], builders.world(), hosts=servers)
    later = [builders.host(n, node=NodeName("other")) for n in range(9, 18)]
    after = folded(before, later, builders.world(), hosts={})
    assert before.role("worker") is None
    assert after.role("ps") == before.role("ps")
    assert after.role("worker") is not None


def test_a_replica_that_left_a_world_of_roles_is_counted_and_is_nobodys_use():
    both = builders.world(replicas=2)
    world = replace(both, members=(both.members[0], replace(both.members[1], role="ps")))
    readings = tuple(
        ReplicaReading(replica=replica, cpu_millis=300, memory_bytes=2**30) for replica in range(3)
    )
    after = folded(Used(), [builders.host(0, replica_readings=readings)], world)
    assert after.rejected_for == {"gone": 1}
    assert after.rejected_because == "replica 2 on laptop is not in the world"
    assert [sum(use.cpu.weights) for use in after.roles] == [1, 1]


def test_the_busiest_of_replicas_that_share_a_node_is_not_hidden_by_the_others():
    readings = tuple(
        ReplicaReading(replica=replica, cpu_millis=millis, memory_bytes=2**30)
        for replica, millis in enumerate((50, 400))
    )
    seen = [builders.host(n, job_cpu_millis=450, replica_readings=readings) for n in range(9)]
    (use,) = folded(Used(), seen, builders.world(replicas=2)).roles
    assert use.cpu.quantile(0.5) == pytest.approx(400, rel=0.05)
    assert use.cpu_limit_millis == 1000, "each has half of the node"


def test_pods_on_one_node_are_counted_each_with_its_own_limits():
    seen = [
        builders.host(
            n,
            job_cpu_millis=400,
            replica_readings=(ReplicaReading(replica=n % 2, cpu_millis=400, memory_bytes=2**30),),
        )
        for n in range(8)
    ]
    (use,) = folded(Used(), seen, builders.world(replicas=2)).roles
    assert use.cpu.quantile(0.5) == pytest.approx(400, rel=0.05)
    assert use.cpu_limit_millis == 2000


@given(steps=st.lists(st.integers(min_value=-(10**7), max_value=10**7), max_size=20))
def test_clocks_that_step_keep_every_weight_between_none_and_one_a_reading(steps: list[int]):
    used = folded(Used(), [builders.host(0)], builders.world())
    for sequence, seconds in enumerate(steps, start=1):
        reading = builders.host(sequence, measured_at=builders.at(seconds))
        used = folded(used, [reading], builders.world())
    (use,) = used.roles
    assert all(0 <= weight <= 1 + len(steps) for weight in use.cpu.weights)
    assert 1 - 1e-3 <= sum(use.cpu.weights) <= 1 + len(steps)
    assert use.cpu.quantile(1.0) == used.uses[0].cpu.quantile(1.0)


def foreseen(soon: float, last: float) -> tuple[Forecast, Forecast]:
    both = (Forecast(bytes=one, most_bytes=one, changed=False) for one in (soon, last))
    return next(both), next(both)


def test_a_server_gets_the_memory_that_it_will_need_before_the_next_change():
    server, reserved = replace(seen(), role="ps"), Resources(memory_bytes=3 * GIB)
    found = memory(server, reserved=reserved, grows=foreseen(4 * GIB, 6 * GIB))

    assert found.target == found.high == pytest.approx(host_memory.MARGIN * 4 * GIB)
    assert "memory will grow to 4 GiB before the next change" in found.reason


def test_a_server_keeps_the_memory_of_its_end_but_not_much_more_than_it_has_now():
    server, reserved = replace(seen(memory=2.0 * GIB), role="ps"), Resources(memory_bytes=9 * GIB)
    near = memory(server, reserved=reserved, grows=foreseen(2 * GIB, 2.2 * GIB))
    far = memory(server, reserved=reserved, grows=foreseen(2 * GIB, 6 * GIB))

    assert near.target == far.target == pytest.approx(host_memory.MARGIN * 2 * GIB)
    assert near.high == pytest.approx(host_memory.MARGIN * 2.2 * GIB)
    assert far.high == pytest.approx(1.5 * 2 * GIB)


def test_a_server_leaves_room_for_its_queue():
    server = replace(seen(1000), role="ps")
    assert cpu(server).target == pytest.approx(1000 / 0.7, rel=0.06)


def test_a_quota_that_stops_a_replica_hides_its_need():
    reserved = Resources(cpu_millis=1000)
    stopped = replace(seen(990), throttled=0.5)

    assert cpu(seen(990), reserved=reserved).target < 1200
    assert cpu(stopped, reserved=reserved).target == pytest.approx(1250)


def test_a_quota_that_stops_bursts_hides_the_need_although_mean_use_is_far_below_it():
    stopped = replace(seen(250), throttled=0.4)
    found = cpu(stopped, reserved=Resources(cpu_millis=300))
    assert found.target == pytest.approx(360)
    assert "throttled a replica in 40 % of its scheduler periods" in found.reason
    assert found.reserved_above == 0.4, "readings of seconds show none of it"


def test_a_quota_that_may_stop_another_role_raises_nothing_before_use_is_near_it():
    server = replace(seen(250), throttled=0.4, mingled=True)
    assert cpu(server, reserved=Resources(cpu_millis=320)).target == 320


def under(quota: float, used: float, use: RoleUse | None = None) -> RoleUse:
    """A worker that its quota stops in 40 % of the periods."""
    return replace(use or seen(used), throttled=0.4).with_quota(quota, used)


def test_cpu_that_was_raised_against_a_quota_is_not_lowered_for_a_day():
    enough = replace(under(800, 500), throttled=0.0)
    has = Resources(cpu_millis=960)
    found = cpu(enough, reserved=has)
    assert found.target == 960
    assert "but a quota of 0.8 CPUs throttled a replica within a day" in found.reason
    for less in (880, 800):
        kept = cpu(enough, reserved=Resources(cpu_millis=less))
        assert kept.target == less, "it is no reason to raise"
        assert "but a quota of 0.8 CPUs throttled a replica within a day" in kept.reason
    assert cpu(enough, now_seconds=73 * HOUR, reserved=has).target < 600


def test_a_run_that_leaked_tells_later_ones_its_cpu_and_not_its_memory():
    first = replace(seen(900, 8 * GIB), first_bytes=2 * GIB, kills=killed(44).kills)
    second = RoleUse(role="worker").inheriting(first, "first", leaked=True)
    assert cpu(second).target == pytest.approx(1035, rel=0.05)
    assert asked(second).memory is None
    assert (second.kills, second.earlier.rise) == ((), 0.0)


def test_a_second_run_begins_with_the_cpu_that_kept_the_first_from_being_stopped():
    second = RoleUse(role="worker").inheriting(under(800, 500), "first")
    assert cpu(second).target == pytest.approx(960)


@pytest.mark.parametrize(("used", "target"), [(255, 360), (290, 432)])
def test_a_quota_is_raised_further_only_if_the_replica_took_more(used: float, target: float):
    raised = under(360, used, under(300, 250))
    assert cpu(raised, reserved=Resources(cpu_millis=360)).target == pytest.approx(target)


def test_a_lower_quota_that_stops_a_replica_does_not_hide_a_higher_one():
    use = under(300, 250, under(800, 500))
    assert use.stop is not None
    assert use.stop.limit_millis == 800


@pytest.mark.parametrize(("days_apart", "governs"), [(3.0, 1000), (0.5, 2000)])
@pytest.mark.parametrize("newest_first", [True, False])
def test_an_old_stop_of_one_run_does_not_hide_the_fresh_one_of_another(
    days_apart: float, governs: float, newest_first: bool
):
    now = 100 * DAY
    fresh = QuotaStop(limit_millis=1000, share=0.4, at_seconds=now - 60)
    old = QuotaStop(limit_millis=2000, share=0.4, at_seconds=fresh.at_seconds - days_apart * DAY)
    use = RoleUse(role="worker")
    for stop in (fresh, old) if newest_first else (old, fresh):
        use = use.inheriting(RoleUse(role="worker", stop=stop), "before")
    found = use.stopped(now)
    assert found is not None
    assert found.limit_millis == governs


def test_stops_of_many_runs_count_from_the_newest_not_from_the_one_that_was_kept():
    now, use = 100 * DAY, RoleUse(role="worker")
    for limit, days in ((1000, 0.0), (2000, 0.9), (3000, 1.8)):
        stop = QuotaStop(limit_millis=limit, share=0.4, at_seconds=now - days * DAY)
        use = use.inheriting(RoleUse(role="worker", stop=stop), "before")
    found = use.stopped(now)
    assert found is not None
    assert found.limit_millis == 2000


@pytest.mark.parametrize(("lowered", "target"), [(200, 240), (355, 355)])
def test_a_raise_in_vain_says_nothing_of_a_quota_that_a_person_lowered_since(
    lowered: int, target: float
):
    """Else Brain ignores for a day that the lower quota stops the replica."""
    in_vain = under(360, 165, under(300, 160))
    use = under(lowered, 165, in_vain)
    assert cpu(use, reserved=Resources(cpu_millis=lowered)).target == pytest.approx(target)


def test_a_kill_at_the_reservation_is_not_taken_for_the_whole_machine():
    full = seen(memory=2.99 * GIB)
    assert full.memory.quantile(1.0) * MIB > 3 * GIB, "the bound of its bucket is above it"
    assert full.memory_limit(3 * GIB) == 3 * GIB


def test_hours_of_training_narrow_the_high_memory():
    short, long = (memory(seen(hours=hours)).high for hours in (1, 24))
    assert short > 1.4 * long
    assert long < 2 * 1.15 * 2 * GIB
