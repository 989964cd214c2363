"""The scaler's decisions as a table: what is asked and seen, and what follows."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain.types.grace import leave_seconds
from brain.types.job import Intent, JobState
from brain.types.resources import NodeName, Resources
from brain.types.roles import RoleSize
from brain.types.world import ReplicaExit, unfit_nodes
from scaler.ports import ReplicaPhase
from scaler.reconcile import Clear, Close, GiveUp, Reserve, Start, Stop, Wait, decide
from tests.scaler.wished import NOW, ago, order, replica, seen, wish

LEFT, LOST, FAILED = ReplicaExit.LEFT, ReplicaExit.LOST, ReplicaExit.FAILED
SUCCEEDED, CANCELLED = ReplicaExit.SUCCEEDED, ReplicaExit.CANCELLED
INTENDED, STARTING, GONE = ReplicaPhase.INTENDED, ReplicaPhase.STARTING, ReplicaPhase.GONE
SURPLUS = "more replicas run than desired"
OVER = "the job is finished"


def case(name, asked, sight, *actions):
    return pytest.param(asked, sight, actions, id=name)


@pytest.mark.parametrize(
    ("asked", "sight", "actions"),
    [
        case("starts-what-is-wished", order(wish(2)), seen(), Start(0, 0), Start(1, 0)),
        case("leaves-alone-what-is-right", order(wish(1)), seen(replica(0))),
        case("counts-one-that-is-starting", order(wish(1)), seen(replica(0, STARTING, born=1))),
        case(
            "grows-before-the-world",
            order(wish(3, generation=4)),
            seen(replica(0), named={0}),
            Start(1, 4),
            Start(2, 4),
        ),
        case(
            "never-reuses-an-id",
            order(wish(1)),
            seen(next_id=7),
            Start(7, 0),
        ),
        case(
            "starts-what-was-only-written-down",
            order(wish(1)),
            seen(replica(0, INTENDED, generation=2)),
            Start(0, 2),
        ),
        case(
            "heals-what-was-lost",
            order(wish(2)),
            seen(replica(0), replica(1, exit=LOST)),
            Start(2, 0),
        ),
        case(
            "writes-down-a-loss-and-heals-at-once",
            order(wish(1)),
            seen(replica(0, GONE)),
            Close(0, LOST, "its agent disappeared without writing a reason"),
            Start(1, 0),
        ),
        case("starts-nothing-of-a-queued-job", order(wish(2, state=JobState.QUEUED)), seen()),
        case(
            "starts-nothing-of-a-suspended-job",
            order(wish(0, state=JobState.SUSPENDED, intent=Intent.SUSPEND)),
            seen(replica(0, exit=LEFT)),
        ),
        case(
            "resumes",
            order(wish(1, state=JobState.STARTING)),
            seen(replica(0, exit=CANCELLED)),
            Start(1, 0),
        ),
    ],
)
def test_replicas_come(asked, sight, actions):
    assert decide(asked, sight, NOW) == actions


@pytest.mark.parametrize(
    ("asked", "sight", "actions"),
    [
        case(
            "never-removes-what-the-world-names",
            order(wish(1)),
            seen(replica(0), replica(1), named={0, 1}),
        ),
        case(
            "removes-what-the-world-let-go",
            order(wish(1)),
            seen(replica(0), replica(1), named={0}),
            Stop(1, SURPLUS),
        ),
        case(
            "removes-the-newest-first",
            order(wish(1)),
            seen(replica(0), replica(1), replica(2)),
            Stop(2, SURPLUS),
            Stop(1, SURPLUS),
        ),
        case(
            "gives-up-an-intent-before-a-process",
            order(wish(1)),
            seen(replica(0), replica(1, INTENDED), replica(2), named={0}),
            Close(1, CANCELLED, f"never started: {SURPLUS}"),
            Stop(2, SURPLUS),
        ),
        case("asks-once", order(wish(0)), seen(replica(0, asked=5))),
        case(
            "ends-what-does-not-listen",
            order(wish(0)),
            seen(replica(0, asked=55)),
            Stop(0, f"{SURPLUS}; the replica did not stop within 55 s", force=True),
        ),
        case("waits-for-a-save-and-the-default-grace", order(wish(0)), seen(replica(0, asked=54))),
        case(
            "waits-for-a-longer-grace",
            order(wish(0)),
            seen(replace(replica(0, asked=140), leave_seconds=leave_seconds(120))),
        ),
        case(
            "lets-the-coordinator-suspend",
            order(wish(0, intent=Intent.SUSPEND)),
            seen(replica(0), named={0}),
        ),
        case(
            "lets-the-coordinator-cancel",
            order(wish(0, intent=Intent.CANCEL), since=10),
            seen(replica(0), named={0}),
        ),
        case(
            "lets-a-coordinator-cancel-with-a-long-grace",
            order(wish(0, intent=Intent.CANCEL), since=140),
            seen(replace(replica(0), leave_seconds=leave_seconds(120)), named={0}),
        ),
        case(
            "cancels-for-a-coordinator-that-hangs",
            order(wish(0, intent=Intent.CANCEL), since=61),
            seen(replica(0), named={0}),
            Stop(0, "the job was cancelled, but its coordinator did not end the job in time"),
        ),
    ],
)
def test_replicas_go(asked, sight, actions):
    assert decide(asked, sight, NOW) == actions


@pytest.mark.parametrize(
    ("asked", "sight", "actions"),
    [
        case("lets-agents-end-by-themselves", order(None, since=1), seen(replica(0), named={0})),
        case("asks-who-lingers", order(None, since=4), seen(replica(0), named={0}), Stop(0, OVER)),
        case("waits-for-grace", order(None), seen(replica(0, asked=54))),
        case(
            "ends-who-does-not-listen",
            order(None),
            seen(replica(0, asked=60)),
            Stop(0, f"{OVER}; the replica did not stop within 55 s", force=True),
        ),
        case(
            "never-starts-an-intent",
            order(None),
            seen(replica(0, INTENDED)),
            Close(0, CANCELLED, f"never started: {OVER}"),
        ),
        case(
            "writes-down-a-loss",
            order(None),
            seen(replica(0, GONE, detail="its agent was ended by SIGKILL")),
            Close(0, LOST, "its agent was ended by SIGKILL"),
            Clear(),
        ),
        case("clears-up", order(None), seen(replica(0, exit=SUCCEEDED)), Clear()),
        case(
            "takes-a-finished-state-for-finished",
            order(wish(2, state=JobState.CANCELLED)),
            seen(),
            Clear(),
        ),
    ],
)
def test_finished_jobs_are_wound_up(asked, sight, actions):
    assert decide(asked, sight, NOW) == actions


@pytest.mark.parametrize(
    ("asked", "sight", "actions"),
    [
        case(
            "one-that-left-under-a-newer-wish-is-not-missed",
            order(wish(2), confirmed=60),
            seen(replica(0), replica(1, exit=LEFT, died=30)),
        ),
        case(
            "one-that-left-is-missed-once-brain-repeats-the-wish",
            order(wish(2), confirmed=10),
            seen(replica(0), replica(1, exit=LEFT, died=30)),
            Start(2, 0),
        ),
        case(
            "without-brain-one-that-left-is-not-missed",
            order(wish(2), confirmed=None),
            seen(replica(0), replica(1, exit=LEFT)),
        ),
        case(
            "without-brain-one-that-was-lost-is",
            order(wish(2), confirmed=None),
            seen(replica(0), replica(1, exit=LOST)),
            Start(2, 0),
        ),
        case(
            "one-of-a-clock-ahead-is-missed",
            order(wish(1), confirmed=60),
            seen(replica(0, exit=LEFT, died=-3600)),
            Start(1, 0),
        ),
        case(
            "success-is-not-replaced",
            order(wish(2)),
            seen(replica(0), replica(1, exit=SUCCEEDED)),
            Wait("replica 1 finished the job"),
        ),
        case(
            "giving-up-is-not-replaced",
            order(wish(1)),
            seen(replica(0, exit=FAILED, detail="train.py does not exist")),
            Wait("replica 0 ended the job: train.py does not exist"),
        ),
        case(
            "one-that-failed-beside-others-is-replaced",
            order(wish(2)),
            seen(replica(0), replica(1, exit=FAILED)),
            Start(2, 0),
        ),
        case(
            "a-later-plan-is-another-try",
            order(wish(1, generation=1)),
            seen(replica(0, exit=FAILED)),
            Start(1, 1),
        ),
    ],
)
def test_who_is_missed(asked, sight, actions):
    assert decide(asked, sight, NOW) == actions


def dead(*ids, died=0.1):
    """Replicas that died a second after their start, one after another."""
    return [
        replica(id, born=died + 1 + age, died=died + age, exit=LOST, detail="no torch")
        for age, id in zip(range(len(ids) - 1, -1, -1), ids, strict=True)
    ]


def test_one_quick_death_is_healed_at_once():
    assert decide(order(wish(1)), seen(*dead(0)), NOW) == (Start(1, 0),)


def test_no_more_start_than_a_queue_admits():
    heals = replace(seen(replica(0)), admitted={"worker": 2})

    assert decide(order(wish(3)), heals, NOW) == (
        Start(1, 0),
        Wait("the job's queue admits 2 of 3 replicas"),
    )
    assert decide(order(wish(2)), replace(heals, admitted=None), NOW) == (Start(1, 0),)


def test_repeated_quick_deaths_wait_longer_and_longer():
    (waits,) = decide(order(wish(1)), seen(*dead(0, 1, 2)), NOW)

    assert waits == Wait(
        "3 replicas in a row ended within 10 s of their start; the reason of the last one, "
        "replica 2: no torch; the next attempt follows in 2 s"
    )


def test_after_the_pause_it_is_tried_again():
    assert decide(order(wish(1)), seen(*dead(0, 1, 2, died=2)), NOW) == (Start(3, 0),)


def test_a_pause_ends_when_the_clock_is_set_back():
    back = NOW - timedelta(hours=1)

    assert decide(order(wish(1)), seen(*dead(0, 1, 2)), back) == (Start(3, 0),)


def test_quick_deaths_beyond_the_restart_limit_end_the_attempts():
    (waits,) = decide(order(wish(1)), seen(*dead(0, 1, 2, 3, died=1e6)), NOW)

    assert isinstance(waits, Wait)
    assert waits.reason.endswith("no torch; that exceeds the restart limit of 3")


def test_replicas_that_die_together_count_once():
    sight = seen(*dead(0, 1, 2, 3, died=1))

    assert decide(order(wish(4)), sight, NOW) == tuple(Start(id, 0) for id in range(4, 8))


def test_a_life_of_use_ends_the_row_of_quick_deaths():
    lived = replica(2, born=500, died=50, exit=LOST)
    sight = seen(*dead(0, 1, died=600), lived, *dead(3))

    assert decide(order(wish(1)), sight, NOW) == (Start(4, 0),)


def test_a_new_generation_forgets_quick_deaths():
    sight = seen(*dead(0, 1, 2, 3, 4))

    assert decide(order(wish(1, generation=1)), sight, NOW) == (Start(5, 1),)


def test_what_does_not_fit_waits_with_the_reason():
    actions = decide(order(wish(4, resources={"cpuMillis": 1500})), seen(free=4), NOW)

    assert actions == (
        Start(0, 0),
        Start(1, 0),
        Wait("2 of 4 replicas wait for room: each needs 1.5 CPU, and 1 CPU, 1024.0 GiB are free"),
    )


def test_roles_wait_for_what_they_reserve_together():
    small = Resources(cpu_millis=500)
    roles = (("chief", RoleSize(resources=small)), ("ps", RoleSize(replicas=2, resources=small)))
    asked = wish(5, resources={"cpuMillis": 2000})
    asked = replace(asked, wish=replace(asked.wish, roles=roles))  # 5.5 CPU
    starts = tuple(Start(id, 0) for id in range(5))
    assert decide(order(asked), seen(free=6), NOW) == starts
    two = (replace(replica(id), resources=Resources(cpu_millis=2000)) for id in range(2))
    assert decide(order(asked), seen(*two, free=2), NOW) == starts[2:]
    (*begun, waits) = decide(order(asked), seen(free=4), NOW)
    assert begun == list(starts[:3])
    assert isinstance(waits, Wait)


def mixed(replicas: int, large: int, **fields):
    """A job with a group of replicas that reserve three CPUs each, beside those of one."""
    asked = wish(replicas, **fields)
    size = RoleSize(replicas=large, processes_per_replica=8, resources=Resources(cpu_millis=3000))
    return order(replace(asked, wish=replace(asked.wish, roles=(("large", size),))))


def of_large(one):
    return replace(one, role="large", resources=Resources(cpu_millis=3000))


def test_where_roles_are_fixed_each_is_started_healed_and_shrunk_apart():
    small = Resources(cpu_millis=500)
    roles = (("chief", RoleSize(resources=small)), ("ps", RoleSize(replicas=2, resources=small)))
    asked = wish(4)
    asked = order(replace(asked, wish=replace(asked.wish, roles=roles)))
    kinds = ("worker", "chief", "ps", "ps")
    starts = tuple(Start(id, 0, kind) for id, kind in enumerate(kinds))
    assert decide(asked, replace(seen(), fixed_roles=True), NOW) == starts
    here = [replace(replica(id), role=kind) for id, kind in enumerate(kinds)]
    lost = [*here[:2], replace(replica(2, exit=LOST), role="ps"), here[3]]
    sight = replace(seen(*lost, named=set(range(4))), fixed_roles=True)
    assert decide(asked, sight, NOW) == (Start(4, 0, "ps"),)
    more = replace(seen(*here, replace(replica(4), role="ps"), named=set()), fixed_roles=True)
    assert decide(asked, more, NOW) == (Stop(4, SURPLUS),)


@pytest.mark.parametrize(
    ("asked", "sight", "actions"),
    [
        case(
            "starts-each-group",
            mixed(3, 1),
            seen(),
            Start(0, 0),
            Start(1, 0),
            Start(2, 0, "large"),
        ),
        case(
            "heals-a-loss-in-its-group",
            mixed(3, 1),
            seen(replica(0), replica(1), of_large(replica(2, exit=LOST)), named={0, 1, 2}),
            Start(3, 0, "large"),
        ),
        case(
            "removes-from-the-group-that-shrank",
            mixed(3, 1),
            seen(replica(0), replica(1), of_large(replica(2)), of_large(replica(3)), named={0, 1}),
            Stop(3, SURPLUS),
        ),
        case(
            "moves-a-replica-from-one-group-to-another",
            mixed(3, 2),
            seen(replica(0), replica(1), of_large(replica(2)), named={0, 1, 2}),
            Start(3, 0, "large"),
        ),
        case(
            "fits-each-group-by-its-own-amounts",
            mixed(3, 1),
            seen(free=4),
            Start(0, 0),
            Start(1, 0),
            Wait(
                "1 of 1 replicas of group large wait for room: each needs 3 CPU, and 2 CPU are free"
            ),
        ),
        case(
            "starts-the-groups-that-a-queue-admits",
            mixed(5, 2),
            replace(seen(replica(0), replica(1)), admitted={"worker": 3, "large": 1}),
            Start(2, 0),
            Start(3, 0, "large"),
            Wait("the job's queue admits 1 of 2 replicas of group large"),
        ),
        case("stops-all-groups", mixed(0, 1), seen(of_large(replica(0))), Stop(0, SURPLUS)),
    ],
)
def test_replicas_of_groups_are_counted_apart(asked, sight, actions):
    decided = tuple(
        replace(one, reason=one.reason.replace(", 1024.0 GiB", ""))
        if isinstance(one, Wait)
        else one
        for one in decide(asked, sight, NOW)
    )
    assert decided == actions


def test_a_document_that_cannot_be_used_is_given_up_in_the_same_words_for_ever():
    asked, sight = order(wish(1, minimum=3)), seen(replica(0, exit=ReplicaExit.LOST))
    (given_up,) = decide(asked, sight, NOW)

    assert isinstance(given_up, GiveUp)
    assert (given_up.replica, given_up.at) == (1, ago(30))
    assert decide(asked, sight, NOW + timedelta(days=1)) == (given_up,)


def test_nothing_is_given_up_before_brain_knows_of_the_last_loss():
    sight = seen(replica(0, exit=ReplicaExit.LOST), replica(1, ReplicaPhase.GONE))

    lost, waits = decide(order(wish(1, minimum=3)), sight, NOW)

    assert isinstance(lost, Close)
    assert isinstance(waits, Wait)


def test_a_document_that_cannot_be_used_any_more_leaves_what_runs():
    (waits,) = decide(order(wish(2, minimum=3)), seen(replica(0)), NOW)

    assert isinstance(waits, Wait)
    assert "minimum" in waits.reason


def test_gpus_that_are_not_there_are_named():
    (waits,) = decide(order(wish(1, resources={"gpus": 2})), seen(), NOW)

    assert isinstance(waits, Wait)
    assert "each needs 0 CPU, 2 GPU" in waits.reason


SICK = "an accelerator of the node failed"


def test_the_only_node_gets_no_replica_while_it_is_left_as_sick():
    sight = seen(replica(0), replica(1, exit=LEFT, unfit=SICK), named={0})

    (waits,) = decide(order(wish(2)), sight, NOW)

    assert waits == Wait(
        "replica 1 left this node, and none starts here before 12:59 UTC or the next plan: "
        "an accelerator of the node failed"
    )


def test_a_node_that_was_left_is_tried_again_after_an_hour():
    sight = seen(replica(0), replica(1, exit=LEFT, born=7200, died=3600, unfit=SICK), named={0})

    assert decide(order(wish(2)), sight, NOW) == (Start(2, 0),)


def test_a_plan_that_came_after_is_somebodys_word_to_try_the_node_again():
    sight = seen(replica(0), replica(1, exit=LEFT, unfit=SICK), named={0})

    assert decide(order(wish(2, generation=1)), sight, NOW) == (Start(2, 1),)


def test_other_nodes_than_those_that_were_left_get_replicas():
    left = replace(replica(1, exit=LEFT, unfit=SICK), node=NodeName("n1"))

    assert decide(order(wish(2)), seen(replica(0), left, named={0}), NOW) == (Start(2, 0),)
    assert list(unfit_nodes([left], NOW)) == ["n1"]


def test_without_token_and_environment_nothing_starts():
    sight = seen(replica(0, INTENDED), lacking="waiting for Brain")

    assert decide(order(wish(2)), sight, NOW) == (Wait("waiting for Brain"),)


replicas_of_any_kind = st.builds(
    replica,
    id=st.just(0),
    phase=st.sampled_from(ReplicaPhase),
    born=st.floats(0, 1000),
    died=st.floats(0, 1000),
    exit=st.none() | st.sampled_from(ReplicaExit),
    asked=st.none() | st.floats(0, 100),
).filter(lambda r: (r.phase is ReplicaPhase.ENDED) == (r.exit is not None))


@given(
    sights=st.lists(replicas_of_any_kind, max_size=6),
    named=st.sets(st.integers(0, 5)),
    wished=st.integers(0, 4),
    confirmed=st.none() | st.floats(0, 1000),
)
def test_whatever_is_seen_no_promise_is_broken(sights, named, wished, confirmed):

    sight = seen(*(replace(each, id=id) for id, each in enumerate(sights)), named=named)
    by_id = {each.id: each for each in sight.replicas}

    actions = decide(order(wish(wished), confirmed=confirmed), sight, NOW)

    starts = [action.replica for action in actions if isinstance(action, Start)]
    ended = [a.replica for a in actions if isinstance(a, Stop | Close)]
    alive = [each.id for each in sight.replicas if each.alive]
    assert all(id not in by_id or by_id[id].phase is INTENDED for id in starts)
    assert len(set(starts)) == len(starts)
    assert len(set(alive) | set(starts)) <= max(wished, len(alive))
    assert not [id for id in ended if id in named and by_id[id].alive]
    assert all(by_id[id].alive or by_id[id].phase is GONE for id in ended)


def test_each_role_reserves_its_own_amounts():
    servers = Resources(cpu_millis=1000, memory_bytes=2**31)
    asked = wish(2)
    roles = (("ps", RoleSize(resources=servers)),)
    asked = replace(asked, wish=replace(asked.wish, roles=roles))
    both = (replica(0), replica(1))
    sight = seen(*(replace(one, adjustable=True) for one in both), named={0, 1})
    assert decide(order(asked), sight, NOW) == (), "roles are known once a world has them"
    told = tuple(replace(one, role="ps" if one.id == 0 else "worker") for one in sight.replicas)
    assert decide(order(asked), replace(sight, replicas=told), NOW) == (Reserve(0),)
