"""Worlds that stand still are found, those that are only busy are not."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.health import hangs, nodes
from launcher.values.hang import rules
from launcher.values.hang.inspection import (
    StackLook,
    culprits,
    main_thread,
    may_be_busy,
    place,
    some_wait,
)
from launcher.workers import stack_dumps
from launcher.workers.processes import process
from tests.launcher.building import a_config, running

C10D = "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
WAITING = f"""Thread 0x02 (most recent call first):
  File "/brain/bootstrap.py", line 9 in watching

Current thread 0x01 (most recent call first):
  File "{C10D}", line 9 in all_reduce
  File "/job/train.py", line 4 in main
"""
STUCK = """Thread 0x01 (most recent call first):
  File "/env/lib/python3.11/site-packages/x/locks.py", line 3 in acquire
  File "/job/data.py", line 40 in read
  File "/job/train.py", line 4 in main
"""
SPIED = """Process 7: python train.py
Thread 9 (idle): "brain"
    run (threading.py:1)
Thread 7 (idle): "MainThread"
    read (data.py:40)
    main (train.py:4)
"""


def a_rank(rank: int, steps: int, at: float, **changes: object) -> rules.RankObserved:
    return rules.RankObserved(rank=rank, steps=steps, step_at=at, **changes)  # type: ignore[arg-type]


def after(*looks: tuple[float, list[rules.RankObserved]]) -> rules.WorldPace:
    """The pace of a world that was looked at then."""
    pace = rules.begin(0.0)
    for now, ranks in looks:
        pace = rules.paced(pace, ranks, now)
    return pace


STEADY = [(float(n), [a_rank(0, n, n), a_rank(1, n, n)]) for n in range(1, 11)]


@pytest.mark.parametrize("seed", range(6))
def test_phases_of_ten_steps_are_no_hangs(seed: int) -> None:
    assert hangs.world(seed, None).found_at is None


@pytest.mark.parametrize("phase", list(rules.QuietPhase))
def test_a_world_that_stops_is_found_within_its_budget(phase: rules.QuietPhase) -> None:
    told = hangs.world(1, phase)
    assert told.stopped_at is not None
    assert told.found_at is not None
    assert 0 < told.found_at - told.stopped_at <= told.budget_seconds + 2 * hangs.BEAT_SECONDS


def test_the_budget_grows_with_steps_and_with_what_a_world_came_back_from() -> None:
    patience = rules.Patience(seconds=15)
    pace = after(*STEADY)
    assert rules.budget(pace, rules.QuietPhase.STEPS, patience) == 20.0
    pace = rules.paced(pace, [a_rank(0, 11, 50.0)], 50.0)
    assert rules.budget(pace, rules.QuietPhase.STEPS, patience) == pytest.approx(120.0)


def test_the_next_world_of_a_script_may_be_as_quiet_as_those_before() -> None:
    patience = rules.Patience(seconds=15)
    slow = after(*STEADY, (50.0, [a_rank(0, 20, 50.0), a_rank(1, 20, 50.0)]))
    shown = rules.shows(slow, "train.py")
    next_world = rules.begin(60.0, shown, "train.py")
    assert rules.budget(next_world, rules.QuietPhase.STEPS, patience) == pytest.approx(120.0)
    other = rules.begin(60.0, shown, "other.py")
    assert rules.budget(other, rules.QuietPhase.STEPS, patience) == 15.0


def budgets(**changes: float) -> tuple[float, float, float]:
    """Seconds that a world has for its first step: one that waits, is idle, is busy."""
    ranks = [a_rank(0, 0, 0.0)]
    shown = rules.ProgressShown(program="train.py", first_seconds=changes.pop("shown", 0.0))
    pace = rules.begin(0.0, shown, "train.py")
    quiet = rules.quiet(pace, ranks, 0.0, rules.Patience(**changes))
    assert quiet is not None
    return quiet.budget_seconds, quiet.idle_seconds, quiet.busy_seconds


def test_a_world_whose_workers_wait_for_each_other_has_half_a_minute_for_its_first_step() -> None:
    assert budgets() == (30.0, 300.0, 10_800.0)
    assert budgets(seconds=3600.0) == (360.0, 3600.0, 10_800.0)
    assert budgets(seconds=2.0) == (2.0, 30.0, 10_800.0)


def test_a_script_whose_first_step_took_long_before_gets_three_times_as_long() -> None:
    slow = after((0.0, [a_rank(0, 0, 0.0)]), (41.0, [a_rank(0, 1, 40.0)]))
    shown = rules.shows(slow, "train.py")
    assert (shown.first_seconds, shown.longest_seconds) == (40.0, 0.0)
    assert rules.news(rules.ProgressShown(program="train.py", longest_seconds=9.0), shown)
    assert budgets(shown=shown.first_seconds)[0] == 120.0


def test_a_session_that_waits_for_its_first_world_waits_for_peers() -> None:
    stacks = WAITING.replace(C10D, "/env/lib/python3.11/site-packages/launcher/elastic/groups.py")
    assert some_wait([StackLook(rank=0, stacks=stacks)])
    assert not some_wait([StackLook(rank=0, stacks=STUCK)])


#: One rank never comes to the exchange that the other one is in.
APART = """
import os, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
def sleep_for_ever():
    time.sleep(3600)
if os.environ["RANK"] == "1":
    sleep_for_ever()
dist.all_reduce(torch.zeros(1))
"""


def test_a_world_that_does_not_reach_its_first_step_is_told_with_every_rank(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(APART)
    command = [sys.executable, "-m", "launcher.cli", "--nproc-per-node=2", "--hang-seconds=1"]
    agent = subprocess.Popen(
        [*command, "train.py"],
        cwd=tmp_path,
        env=os.environ | {"BRAIN_HOME": str(tmp_path), "TORCHELASTIC_ERROR_FILE": ""},
        stderr=subprocess.PIPE,
        text=True,
    )
    told = []
    try:
        assert agent.stderr is not None
        for line in agent.stderr:
            told.append(line)
            # A slow machine says more before it; the finding's own line names the place, too.
            if "sleep_for_ever" in line and "train.py" in line and "stopped first" not in line:
                break
        said = "".join(told)
    finally:
        agent.terminate()
        agent.communicate(timeout=60)
    assert "in the first step; rank 1" in said
    assert "train.py:6 in sleep_for_ever; the world continues unchanged" in said
    assert "rank 0: state S" in said


def test_steps_of_a_world_that_made_few_are_not_remembered() -> None:
    brief = after((1.0, [a_rank(0, 1, 1.0)]), (61.0, [a_rank(0, 2, 61.0)]))
    assert rules.shows(brief, "train.py").step_seconds == 0.0


def test_what_a_script_shows_is_news_where_it_is_a_quarter_more() -> None:
    known = rules.ProgressShown(program="train.py", step_seconds=1.0, longest_seconds=40.0)
    assert not rules.news(known, rules.ProgressShown(program="train.py", longest_seconds=45.0))
    assert rules.news(known, rules.ProgressShown(program="train.py", longest_seconds=51.0))
    assert rules.news(known, rules.ProgressShown(program="other.py", longest_seconds=1.0))
    assert not rules.news(None, rules.ProgressShown(program="train.py"))


def test_a_rank_that_waits_is_no_hang_while_another_moves() -> None:
    pace = after(*STEADY, (500.0, [a_rank(0, 10, 10.0), a_rank(1, 10, 10.0, life_at=499.0)]))
    quiet = rules.quiet(pace, [a_rank(0, 10, 10.0)], 500.0, rules.Patience())
    assert quiet is not None
    assert quiet.seconds == 1.0


def test_parked_workers_are_ours() -> None:
    pace = after(*STEADY, (900.0, [a_rank(0, 10, 10.0, parked=True)]))
    assert pace.moved_at == 900.0


def test_who_saves_is_who_the_others_wait_for() -> None:
    ranks = [a_rank(0, 10, 10.0, saving=True), a_rank(1, 10, 10.0), a_rank(2, 10, 10.0)]
    assert rules.suspects(ranks) == (0,)
    assert rules.suspects([a_rank(0, 11, 10.0), a_rank(1, 10, 10.0)]) == (1,)
    assert rules.suspects([a_rank(0, 10, 10.0), a_rank(1, 10, 10.0)]) == ()


def test_nobody_looks_where_none_is_to() -> None:
    ranks = [a_rank(0, 1, 1.0)]
    assert rules.quiet(after((1.0, ranks)), ranks, 1e6, rules.Patience(seconds=0)) is None


def test_who_is_in_no_collective_is_to_blame() -> None:
    looks = [
        StackLook(rank=0, stacks=WAITING),
        StackLook(rank=1, stacks=STUCK),
        StackLook(rank=2, stacks=WAITING),
    ]
    assert culprits(looks, ()) == (1,)
    assert place(looks[1]) == "data.py:40 in read, which called acquire"


def test_a_rank_of_which_nobody_says_anything_may_be_busy() -> None:
    still = [StackLook(rank=0, state="S"), StackLook(rank=1, state="S")]
    assert not may_be_busy(still, [0, 1])
    assert may_be_busy(still, [0, 1, 2])
    assert may_be_busy([StackLook(rank=0, cpu_share=1.0)], [0])


def test_both_ways_to_have_stacks_name_the_main_thread() -> None:
    assert main_thread(SPIED) == ("data.py:40 read", "train.py:4 main")
    assert main_thread(WAITING)[1] == "/job/train.py:4 main"


#: It says so from another thread, once the first one is where it stays.
STANDS = """
import os, sys, threading, time
def stand_still():
    held = threading.Lock(); held.acquire()
    threading.Thread(target=tell, args=(sys._getframe(),)).start()
    held.acquire()
def tell(frame):
    while frame.f_lineno != 6:
        time.sleep(0.01)
    os.close(os.open("stands", os.O_CREAT))
stand_still()
"""
WORKS = "import os\nos.close(os.open('stands', os.O_CREAT))\nn = 0\nwhile True:\n    n += 1\n"


def looked_at(place: Path, script: str) -> StackLook:
    """What is seen of a worker that has come to where it stays."""
    (place / "train.py").write_text(script)

    async def story() -> StackLook:
        async with running(a_config(place, (sys.executable, str(place / "train.py")))) as watched:
            async with asyncio.timeout(60):
                while not (place / "stands").exists():
                    await asyncio.sleep(0.02)
            (look,) = await asyncio.to_thread(stack_dumps.look, watched.workers.targets, 0.5)
            return look

    return asyncio.run(story())


def test_a_worker_that_stands_still_shows_where(tmp_path: Path) -> None:
    look = looked_at(tmp_path, STANDS)
    assert look.means in ("faulthandler", "py-spy")
    assert "stand_still" in main_thread(look.stacks)[0]
    assert not look.busy


def test_a_worker_that_computes_is_busy(tmp_path: Path) -> None:
    assert looked_at(tmp_path, WORKS).busy


def test_a_process_without_our_handler_is_not_signalled() -> None:
    assert not process.catches(os.getpid(), stack_dumps.STACKS_SIGNAL)


@pytest.mark.parametrize("size", [2, 3, 5, 8])
@pytest.mark.parametrize("name", list(nodes.FAULTS))
def test_every_single_bad_node_is_found_in_three_rounds(size: int, name: str) -> None:
    if size == 2 and ("exchanges" in name or "link" in name):
        pytest.skip("which end of one link is bad cannot be told by the two of them")
    came = nodes.faults(size, name, nodes.FAULTS[name], 2)
    assert (came.right, came.rounds <= 3) == (came.trials, True)


def test_healthy_nodes_are_not_named() -> None:
    assert nodes.alarms(8, 20) == 0
