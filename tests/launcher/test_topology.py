"""Who is in a world and in which order: by switches, units and processes, without a process."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations, groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain.errors import BadInput
from brain.types.world import Cause, Member
from launcher.coordinator.membership import decide
from launcher.coordinator.topology import choose, fit, layout
from launcher.coordinator.topology.parallel import crossings, groups, unit_of
from launcher.values.action import (
    STAY,
    FormWorld,
    ParkWorld,
    WaitFor,
)
from launcher.values.config import WorldDocument
from launcher.values.observation import AgentObserved, JobObserved, Shape, WorldPhase, WorldRules
from tests.launcher.elastic import desired
from tests.launcher.observations import agent, agents, members, observation, world

EIGHT = Shape(processes=8, least=8, most=8)


def on(switch: str, *replicas: int, **fields: object) -> list[AgentObserved]:
    """Agents on machines of their own below one switch."""
    path = ("z", "s", "r", switch)
    return [agent(each, node=f"node{each}", topology=path, **fields) for each in replicas]


def sized(replica: int, processes: int, **fields: object) -> AgentObserved:
    """An agent on a machine of its own, with so many processes."""
    return agent(replica, node=f"node{replica}", processes=processes, **fields)


def ids(order: Iterable[Member]) -> list[int]:
    return [member.replica for member in order]


def switches(order: Iterable[Member]) -> list[str]:
    """Switches as ranks count up, each run of one switch once."""
    return [name for name, _ in groupby(member.topology[-1] for member in order)]


def of(replicas: Sequence[AgentObserved], goal: int = 99, unit: int = 1) -> tuple[Member, ...]:
    """A first world of them."""
    return choose((), replicas, goal, unit)


# --- processes ---------------------------------------------------------------------------------


def document(*processes: int) -> WorldDocument:
    """A world whose agents have so many processes each."""
    made = choose((), [sized(each, count) for each, count in enumerate(processes)], len(processes))
    return WorldDocument(
        job="job",
        epoch=1,
        generation=0,
        cause=Cause.START,
        members=made,
        master_addr="a",
        master_port=1,
        run_id="run",
        coordinator="a:1",
    )


def test_processes_of_an_agent_are_what_it_declares() -> None:
    assert [member.processes for member in of([sized(0, 4), sized(1, 8)])] == [4, 8]


def test_world_size_is_the_sum_of_processes_over_agents_of_different_sizes() -> None:
    assert document(4, 2, 8).processes == 14


def test_a_rank_is_the_processes_before_its_agent_and_its_local_rank() -> None:
    made = document(4, 2, 8)

    assert [made.first_rank(group) for group in range(3)] == [0, 4, 6]


@pytest.mark.parametrize(("here", "serve"), [({0: 4, 1: 4}, [0, 1]), ({2: 8}, [2])])
def test_a_job_that_asks_for_8_processes_is_served_by_4_and_4_or_by_8(
    here: dict[int, int], serve: list[int]
) -> None:
    found = choose((), [sized(r, n) for r, n in here.items()], 8, 1, 8, EIGHT)

    assert ids(found) == serve


def test_where_both_are_here_the_fewest_machines_serve() -> None:
    here = [sized(0, 4), sized(1, 4), sized(2, 8)]

    assert ids(choose((), here, 8, 1, 8, EIGHT)) == [2]


def test_members_that_serve_are_not_exchanged_for_fewer_machines() -> None:
    here = [sized(0, 4), sized(1, 4), sized(2, 8)]
    before = choose((), here[:2], 8, 1, 8, EIGHT)

    assert choose(before, here, 8, 1, 8, EIGHT) == before


def test_after_a_migration_one_agent_of_8_takes_the_place_of_two_of_4() -> None:
    before = choose((), [sized(0, 4), sized(1, 4)], 8, 1, 8, EIGHT)

    assert ids(choose(before, [sized(0, 4), sized(2, 8)], 8, 1, 8, EIGHT)) == [2]


def test_of_alike_agents_those_serve_that_share_a_switch() -> None:
    here = [*on("sw0", 0, processes=4), *on("sw1", 1, 2, processes=4), *on("sw2", 3, processes=4)]

    assert ids(choose((), here, 8, 1, 8, EIGHT)) == [1, 2]


def test_fewer_processes_serve_down_to_the_least() -> None:
    shape = replace(EIGHT, least=4)

    assert ids(choose((), [sized(0, 3), sized(1, 2)], 8, 1, 4, shape)) == [0, 1]
    assert choose((), [sized(0, 3)], 8, 1, 4, shape) == ()


def test_more_processes_serve_up_to_the_most_where_exactly_as_many_cannot_be() -> None:
    here = [sized(0, 5), sized(1, 5), sized(2, 7)]

    assert ids(choose((), here, 8, 1, 4, Shape(processes=8, least=4, most=10))) == [0, 1]
    assert ids(choose((), here, 8, 1, 4, Shape(processes=8, least=4, most=8))) == [2]


def test_a_world_of_processes_forms_when_they_are_here_whatever_the_agents() -> None:
    rules = WorldRules(shape=EIGHT)
    wanted = desired(8, minimum=8)
    seen = JobObserved(desired=wanted, agents=(sized(0, 4),), rules=rules, desired_since=0.0)

    assert isinstance(decide(seen, 0.0), WaitFor)
    action = decide(replace(seen, agents=(sized(0, 4), sized(1, 4))), 0.0)
    assert isinstance(action, FormWorld)
    assert ids(action.members) == [0, 1]


def test_a_spare_of_a_job_that_asks_for_processes_takes_over_from_those_that_leave() -> None:
    wanted, rules = desired(8, minimum=8), WorldRules(shape=EIGHT, spares=True)
    before = choose((), [sized(0, 4), sized(1, 4)], 8, 1, 8, EIGHT)
    running = world(members=before, goal=8)
    spare = JobObserved(
        desired=wanted, agents=(sized(0, 4), sized(1, 4), sized(2, 8)), rules=rules, world=running
    )
    lost = replace(running, phase=WorldPhase.ENDED, ended_by=Cause.MEMBERSHIP)
    action = decide(replace(spare, world=lost, agents=(sized(0, 4), sized(2, 8))), 1e6)

    assert decide(spare, 1e6) == STAY
    assert isinstance(action, FormWorld)
    assert ids(action.members) == [2]


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=7),
    st.integers(1, 20),
    st.integers(0, 4),
    st.integers(0, 7),
)
def test_a_wished_sum_is_met_exactly_wherever_any_agents_make_it(
    sizes: list[int], goal: int, room: int, survivors: int
) -> None:
    here = [sized(each, count) for each, count in enumerate(sizes)]
    before = of(here[:survivors])
    shape = Shape(processes=goal, least=1, most=goal + room)
    found = choose(before, here, goal, 1, 1, shape)
    sums = {sum(some) for n in range(len(sizes) + 1) for some in combinations(sizes, n)} - {0}
    above = [each for each in sums if goal <= each <= goal + room]
    below = [each for each in sums if each < goal]
    best = min(above) if above else max(below, default=0)

    assert sum(member.processes for member in found) == best


# --- order -------------------------------------------------------------------------------------


def test_nodes_are_ordered_by_number_not_by_letter() -> None:
    assert ids(of([agent(0, node="node10"), agent(1, node="node2")])) == [1, 0]


def test_order_is_depth_first_over_zone_spine_rack_switch_and_host() -> None:
    paths = [
        ("z1", "s1", "r1", "sw10"),
        ("z2", "s1", "r1", "sw2"),
        ("z1", "s1", "r2", "sw1"),
        ("z1", "s2", "r1", "sw1"),
        ("z1", "s1", "r1", "sw2"),
    ]
    here = [agent(each, node=f"n{each}", topology=path) for each, path in enumerate(paths)]

    assert ids(of(here)) == [4, 0, 2, 3, 1]


def test_the_fullest_switch_comes_first() -> None:
    assert switches(of([*on("sw0", 0), *on("sw1", 1, 2), *on("sw2", 3, 4, 5)])) == [
        "sw2",
        "sw1",
        "sw0",
    ]


def test_the_switch_of_rank_0_comes_first_even_if_it_is_not_the_fullest() -> None:
    here = [*on("sw0", 0, 1, 2), *on("sw1", 3), *on("sw1", 4, rank=0)]

    assert switches(of(here)) == ["sw1", "sw0"]


def test_agents_of_one_machine_are_neighbours() -> None:
    here = [agent(each, node=f"n{each % 2}") for each in range(4)]

    assert [member.node for member in of(here)] == ["n0", "n0", "n1", "n1"]


def test_a_rank_that_was_asked_for_from_outside_is_given() -> None:
    assert ids(of([agent(0, rank=1), agent(1, rank=0)])) == [1, 0]


def test_who_asked_for_no_rank_gets_what_is_left() -> None:
    assert ids(of([agent(0, rank=2), agent(1), agent(2), agent(3, rank=1)])) == [1, 3, 0, 2]


def test_ranks_that_were_asked_for_hold_for_one_that_comes_back_later() -> None:
    here = [agent(each, rank=each) for each in range(4)]
    without = of([here[0], here[1], here[3]])

    assert ids(choose(without, here, 4)) == [0, 1, 2, 3]


PLACES = st.tuples(
    st.sampled_from(["z1", "z2"]), st.sampled_from(["r1", "r2"]), st.sampled_from(["a", "b", "c"])
)
CLUSTERS = st.lists(st.tuples(PLACES, st.integers(0, 12)), min_size=1, max_size=24)


def cluster(drawn: Iterable[tuple[tuple[str, ...], int]], first: int = 0) -> list[AgentObserved]:
    """Agents at drawn places, several of them on one machine."""
    return [
        agent(at, node=f"{'-'.join(path)}-{host}", topology=path)
        for at, (path, host) in enumerate(drawn, first)
    ]


@given(CLUSTERS, st.integers(1, 4), st.randoms(use_true_random=False))
def test_what_shares_a_branch_is_contiguous_at_every_level(
    drawn: list[tuple[tuple[str, ...], int]], unit: int, random: object
) -> None:
    found = of(cluster(drawn), unit=unit)

    for depth in range(1, 4):
        runs = [key for key, _ in groupby(member.topology[:depth] for member in found)]
        assert len(runs) == len(set(runs))


@given(CLUSTERS, CLUSTERS, st.integers(1, 30), st.integers(1, 5), st.data())
def test_whatever_comes_and_goes_survivors_keep_their_order_and_units_are_whole(
    drawn: list[tuple[tuple[str, ...], int]],
    more: list[tuple[tuple[str, ...], int]],
    goal: int,
    unit: int,
    data: st.DataObject,
) -> None:
    old = cluster(drawn)
    before = choose((), old, goal, unit)
    stay = data.draw(st.lists(st.sampled_from(old), unique_by=lambda a: a.replica))
    here = data.draw(st.permutations([*stay, *cluster(more, first=100)]))
    found = choose(before, here, goal, unit)
    kept = [replica for replica in ids(found) if replica in ids(before)]

    assert len(found) == fit(len(here), goal, unit, 1)
    assert [member.group_rank for member in found] == list(range(len(found)))
    assert kept == [replica for replica in ids(before) if replica in kept]
    lost = {a.replica for a in stay} & set(ids(before)) - set(kept)
    assert not lost or not set(ids(found)) - set(ids(before))


@given(CLUSTERS, st.integers(1, 30), st.integers(1, 5), st.data())
def test_the_order_in_which_agents_are_known_means_nothing_and_a_world_that_stands_stays(
    drawn: list[tuple[tuple[str, ...], int]], goal: int, unit: int, data: st.DataObject
) -> None:
    here = cluster(drawn)
    found = choose((), here, goal, unit)

    assert choose((), data.draw(st.permutations(here)), goal, unit) == found
    assert choose(found, here, goal, unit) == found


def test_ten_thousand_agents_are_ordered_and_lose_one_in_fifty() -> None:
    here = [
        agent(each, node=f"n{each}", topology=("z", f"s{each // 1024}", f"sw{each // 16}"))
        for each in range(10_000)
    ]
    before = of(here, 10_000, 4)
    after = choose(before, [each for each in here if each.replica % 50], 10_000, 4)

    assert (len(before), len(after)) == (10_000, 9_800)


# --- minimal disturbance -----------------------------------------------------------------------


def test_survivors_keep_their_order_and_a_replacement_takes_the_hole() -> None:
    assert choose(members([3, 1, 2]), agents(3, 2, 7), 3) == members([3, 7, 2])


def test_growing_appends() -> None:
    assert choose(members([1, 0]), agents(0, 1, 2, 3), 4) == members([1, 0, 2, 3])


def test_a_joiner_stands_beside_its_switch_so_that_this_stays_contiguous() -> None:
    before = of([*on("sw0", 0, 1, 2), *on("sw1", 3, 4)])
    found = choose(before, [*on("sw0", 0, 1, 2, 5), *on("sw1", 3, 4)], 6)

    assert ids(found) == [0, 1, 2, 5, 3, 4]


def test_units_that_joined_are_not_torn_apart_to_stand_beside_their_switch() -> None:
    before = of([*on("sw0", 0, 1), *on("sw1", 2, 3)], unit=2)
    here = [*on("sw0", 0, 1, 4), *on("sw1", 2, 3, 5)]

    assert ids(choose(before, here, 6, 2)) == [0, 1, 2, 3, 5, 4]


def test_shrinking_lets_go_of_the_highest_ids() -> None:
    assert choose(members([4, 0, 2]), agents(0, 2, 4), 2) == members([0, 2])


def test_the_hole_on_a_node_is_filled_by_a_joiner_of_that_node() -> None:
    seen = [agent(0), agent(5, node="n1"), agent(6, node="n0")]

    assert ids(choose(members([0, 1]), seen, 2)) == [0, 6]


def test_a_replacement_comes_from_the_same_switch_where_one_is_there() -> None:
    before = of([*on("sw0", 0, 1), *on("sw1", 2, 3)])
    here = [*on("sw0", 0), *on("sw1", 3), *on("sw1", 4), *on("sw0", 5)]

    assert ids(choose(before, here, 4)) == [0, 5, 4, 3]


def test_a_hole_does_not_take_the_neighbour_of_another_hole() -> None:
    before = of([*on("sw0", 0, 1), *on("sw1", 2, 3)])
    here = [*on("sw0", 0), *on("sw1", 2), *on("sw1", 4), *on("sw7", 5)]

    assert ids(choose(before, here, 4)) == [0, 5, 2, 4]


def test_a_warm_spare_is_the_first_choice_as_replacement() -> None:
    before = of(on("sw0", *range(31)), unit=4)
    spare = 29
    here = [each for each in on("sw0", *range(31), 40) if each.replica not in (5, 28)]
    found = choose(before, here, 28, 4)

    assert ids(found)[5] == spare


# --- units and spares --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("available", "goal", "unit", "minimum", "size"),
    [(31, 31, 4, 4, 28), (3, 4, 4, 4, 0), (5, 2, 1, 1, 2), (1, 2, 1, 2, 0), (7, 8, 2, 2, 6)],
)
def test_usable_is_the_largest_multiple_of_the_unit(
    available: int, goal: int, unit: int, minimum: int, size: int
) -> None:
    assert fit(available, goal, unit, minimum) == size
    assert len(choose((), agents(*range(available)), goal, unit, minimum)) == size


def test_31_nodes_of_unit_4_run_28_and_leave_out_the_3_of_the_most_fragmented_switch() -> None:
    whole = [*on("sw0", *range(8)), *on("sw1", *range(8, 16)), *on("sw3", *range(23, 31))]
    found = of([*whole, *on("sw2", *range(16, 23))], 32, 4)

    assert Counter(member.topology[-1] for member in found) == {
        "sw0": 8,
        "sw1": 8,
        "sw2": 4,
        "sw3": 8,
    }


def test_spares_are_taken_from_several_switches_where_that_keeps_all_units_whole() -> None:
    here = [*on("sw0", *range(9)), *on("sw1", *range(9, 18)), *on("sw2", *range(18, 31))]
    found = of(here, 32, 4)

    assert Counter(member.topology[-1] for member in found) == {"sw0": 8, "sw1": 8, "sw2": 12}


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(1, 4))
def test_no_unit_crosses_a_switch_where_leaving_out_what_is_beyond_units_is_enough(
    counts: list[int], unit: int
) -> None:
    first = [sum(counts[:at]) for at in range(len(counts))]
    here = [
        each
        for at, count in enumerate(counts)
        for each in on(f"sw{at}", *range(first[at], first[at] + count))
    ]
    found = of(here, sum(count // unit * unit for count in counts), unit)

    for at in range(0, len(found), unit):
        assert len({member.topology for member in found[at : at + unit]}) == 1


def test_whole_units_are_left_out_from_the_emptiest_switch() -> None:
    here = [*on("sw0", *range(4)), *on("sw1", *range(4, 12))]

    assert switches(of(here, 8, 4)) == ["sw1"]


def test_the_rest_of_a_broken_unit_becomes_spare_and_other_units_stay_as_they_are() -> None:
    before = members(range(12))
    found = choose(before, [each for each in agents(*range(12)) if each.replica != 5], 12, 4)

    assert ids(found) == [0, 1, 2, 3, 8, 9, 10, 11]


def test_a_copy_of_the_network_is_the_unit_where_it_spans_machines() -> None:
    assert (unit_of(8, 4, 8), unit_of(8, 1, 8), unit_of(2, 2, 8)) == (4, 1, 1)


def test_growing_from_28_to_32_waits_until_the_unit_is_complete_and_training_goes_on() -> None:
    wanted = desired(32, unit=4, minimum=4)
    running = world(*range(28), goal=32)
    seen = observation(None, *range(31), desired_since=1000.0, world=running)

    assert isinstance(decide(replace(seen, desired=wanted), 1000.0), WaitFor)
    assert decide(replace(seen, desired=wanted), 1e6) == STAY
    assert decide(replace(seen, desired=wanted, agents=agents(*range(32))), 1e6) == ParkWorld()


def test_agents_beyond_the_wish_stay_as_spares_where_a_person_started_them() -> None:
    assert decide(observation(1, 0, 1, world=world(0), rules=WorldRules(spares=True)), 1e6) == STAY


def test_the_coordinator_says_who_is_spare_and_why() -> None:
    here = [*on("sw0", *range(4)), *on("sw1", 4, 5, 6)]
    said = layout(of(here, 8, 4), here, 4, WorldRules())

    assert said == (
        "warm spares: replicas 4, 5, 6 (4 of 7 replicas run, whole units of 4; "
        "3 on switch z/s/r/sw1 with 0 running replicas); "
        "0 of 1 data groups cross a switch (0 edges)"
    )


# --- tensor, data, pipeline --------------------------------------------------------------------


def test_tensor_groups_stay_on_machines_data_on_switches_and_stages_go_across() -> None:
    here = [*on("sw0", 0, 1, processes=4), *on("sw1", 2, 3, processes=4)]
    found = groups(of(here), tensor=4, pipeline=2)

    assert crossings(found) == (
        "0 of 4 tensor groups leave a machine (0 edges), 0 of 8 data groups cross a switch "
        "(0 edges), 8 of 8 pipeline groups cross a switch (8 edges)"
    )


def test_groups_are_those_of_megatron() -> None:
    found = groups(of([sized(0, 4), sized(1, 4)]), tensor=2, pipeline=2)
    by_kind = {kind: [g.ranks for g in found if g.kind == kind] for kind in ("tensor", "data")}

    assert by_kind["tensor"] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert by_kind["data"] == [(0, 2), (1, 3), (4, 6), (5, 7)]


def test_edges_of_a_ring_that_cross_a_switch_are_counted_group_by_group() -> None:
    found = groups(of([*on("sw0", 0, 1), *on("sw1", 2)]))

    assert [(group.kind, group.switch_edges) for group in found] == [("data", 2)]


def test_a_world_of_broken_copies_of_the_network_is_refused_with_the_remedy() -> None:
    with pytest.raises(
        BadInput, match="3 processes do not make whole copies of 2 processes; give a unit"
    ):
        groups(of(agents(0, 1, 2)), tensor=2)
