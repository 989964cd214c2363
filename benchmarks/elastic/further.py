"""Measurements that the table of changes does not contain: silent nodes, several changes at once,
coordinators, many agents, and starts.
"""

import os
import random
import signal
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from benchmarks.elastic import ending, launchers, saving, table
from benchmarks.elastic.events import KILL, Outcome, begun, stage
from benchmarks.elastic.job import Job, Stuck, running
from benchmarks.elastic.launchers import Launcher, environment
from benchmarks.report import Row
from tests.launcher import crowd

Measurement = Callable[[Path, Sequence[Outcome]], list[Row]]

OURS = "brain-run"
ROUNDS = 3
#: The heartbeat budget, and what may come on top of it.
BUDGET_SECONDS, SLACK_SECONDS = 3.0, 0.5
#: How long torchrun is watched with a stopped peer; its collectives wait for 30 minutes.
_HUNG_SECONDS = 30.0
_SETTLED_STEPS = 25
AGENTS = 64
#: Nodes that are killed one after the other, and the longest that any of them may cost.
KILLS, KILL_SECONDS = 50, 0.5
#: Share of a step that a session may cost, and how long the scripts' steps are.
STEADY, _STEP_SECONDS = 0.005, 0.05
#: Simulated agents, and how much more a message count per agent may be among many of them.
CROWDS, _LINEAR = (100, 10_000), 1.05


def hung_peer(home: Path, outcomes: Sequence[Outcome]) -> list[Row]:
    """Stop a node without ending its processes; its peers must be released when the heartbeat
    budget is spent.
    """
    known = launchers.known(home)
    found = [_silence(known[OURS], node=-1, seconds=30) for _ in range(ROUNDS)]
    freed = [freed for freed, _ in found]
    alone = [_stopped_worker(known[OURS]) for _ in range(ROUNDS)]
    try:
        _, theirs = _silence(known[table.TUNED], node=-1, seconds=_HUNG_SECONDS)
        note = ""
    except Stuck:
        theirs, note = _HUNG_SECONDS, f"torchrun not within {_HUNG_SECONDS:.0f} s"
    return [
        Row(
            metric="hung peer (SIGSTOP of a node): its peers are free",
            value=statistics.median(freed),
            unit="s",
            bar=BUDGET_SECONDS + SLACK_SECONDS,
            note=f"[{table.spread(freed)}] n={len(freed)}",
        ),
        Row(
            metric="hung peer (SIGSTOP of a worker alone): its peers are free",
            value=statistics.median(alone),
            unit="s",
            bar=BUDGET_SECONDS + SLACK_SECONDS,
            note=f"[{table.spread(alone)}] n={len(alone)}",
        ),
        Row(
            metric="hung peer: first step of the world without it",
            value=statistics.median(stepped for _, stepped in found),
            unit="s",
            peer=table.TUNED,
            peer_value=theirs,
            note=note,
        ),
    ]


def _silence(launcher: Launcher, *, node: int, seconds: float) -> tuple[float, float]:
    """Stop all processes of one node of three. Return the seconds until the others' workers were
    ended, and until their new world made a step.
    """
    with begun(launcher, 3) as job:
        old = job.world(3, _SETTLED_STEPS, 120)
        silent = job.agents[node].pids()
        began = time.monotonic()
        for pid in silent:
            os.kill(pid, signal.SIGSTOP)
        new = job.world(2, 1, seconds)
        peers = [job.ended[pid] for pid in old if pid not in silent and pid in job.ended]
        first = min(w.steps[0].at for w in job.workers() if w.pid in new)
        return max(peers, default=first) - began, first - began


def _stopped_worker(launcher: Launcher) -> float:
    """Stop one worker of three, whose agent lives; return the seconds until the others' workers
    were ended.
    """
    with begun(launcher, 3) as job:
        old = job.world(3, _SETTLED_STEPS, 120)
        began = time.monotonic()
        os.kill(old[-1], signal.SIGSTOP)
        job.until("the end of its world", 30, lambda: all(pid in job.ended for pid in old))
        return max(job.ended[pid] for pid in old) - began


def bursts(home: Path, outcomes: Sequence[Outcome]) -> list[Row]:
    """Cause three changes one second apart; none may cost much more than a single change."""
    single = [_single(outcomes, event) for event in ("crash", "leave")]
    known = launchers.known(home)
    gaps = [gap for _ in range(ROUNDS) for gap in _burst(known[OURS])]
    bar = 2 * max(filter(None, single)) if any(single) else None
    return [
        Row(
            metric="changes 1 s apart (crash, leave, crash): worst gap",
            value=max(gaps),
            unit="s",
            bar=bar,
            note=f"median {statistics.median(gaps):.3g}; bar: twice the single figure",
        )
    ]


def _burst(launcher: Launcher) -> list[float]:
    with begun(launcher, 3) as job:
        job.world(3, _SETTLED_STEPS, 120)
        began = time.monotonic()
        (job.traces / "crash-1").touch()
        time.sleep(1)
        job.agents[-1].process.send_signal(signal.SIGTERM)
        time.sleep(1)
        (job.traces / "crash-1").touch()
        job.until("the last crash", 60, lambda: not (job.traces / "crash-1").exists())
        crashed = time.monotonic()
        job.until("the world after it", 60, lambda: _stepped_after(job, crashed))
        return _gaps(job, began)


def _stepped_after(job: Job, instant: float) -> bool:
    """Return True if a process that began after ``instant`` has made a step."""
    firsts = [w.steps[0].at for w in job.workers() if w.steps and w.steps[0].rank == 0]
    return max(firsts) > instant


def _gaps(job: Job, since: float) -> list[float]:
    """Return the gaps between the worlds in which rank 0 was."""
    firsts = [w for w in job.workers() if w.steps and w.steps[0].rank == 0]
    firsts.sort(key=lambda worker: worker.steps[0].at)
    pairs = pairwise(firsts)
    return [b.steps[0].at - a.steps[-1].at for a, b in pairs if b.steps[0].at > since]


def coordinator(home: Path, outcomes: Sequence[Outcome]) -> list[Row]:
    """Kill or stop the host of the coordinator, which is also the host of rank 0."""
    ours = launchers.known(home)[OURS]
    kill = _single(outcomes, "kill")
    killed = [_kill_first(ours, agents) for agents in (3, 2) for _ in range(ROUNDS)]
    silent = [_silence(ours, node=0, seconds=60)[1] for _ in range(ROUNDS)]
    return [
        Row(
            metric="coordinator's host killed, proved: gap",
            value=statistics.median(killed),
            unit="s",
            bar=2 * kill if kill else None,
            note=f"[{table.spread(killed)}] n={len(killed)}; bar: twice a node's kill",
        ),
        Row(
            metric="coordinator's host silent: first step of the world without it",
            value=statistics.median(silent),
            unit="s",
            bar=BUDGET_SECONDS + SLACK_SECONDS + 2 * kill if kill else None,
            note=f"[{table.spread(silent)}] n={len(silent)}; bar: the lease and a take-over",
        ),
    ]


def _kill_first(launcher: Launcher, agents: int) -> float:
    """Kill the coordinator's node; returns the gap."""
    with begun(launcher, agents) as job:
        old = job.world(agents, _SETTLED_STEPS, 120)
        job.kill_node(0)
        new = job.world(agents - 1, 1, 60)
        seen = {worker.pid: worker for worker in job.workers()}
        stood = max(seen[pid].steps[-1].at for pid in old)
        return min(seen[pid].steps[0].at for pid in new) - stood


def many_agents(home: Path, outcomes: Sequence[Outcome]) -> list[Row]:
    """Start 64 agents whose workers only sleep; kill one agent, and wait until the others form a
    world.
    """
    ours = launchers.known(home)[OURS]
    many = replace(
        ours,
        flags=("--no-python",),
        script="/bin/sh",
        arguments=(str(launchers.SCRIPTS / "wait.sh"),),
        nodes=f"1:{AGENTS}",
    )
    took = []
    with begun(many, 1) as job:
        for _ in range(AGENTS - 1):
            job.start()
            time.sleep(0.15)  # that many interpreters at once would only wait for each other
        _formed(job, AGENTS)
        for lost in range(1, ROUNDS + 1):
            time.sleep(2)
            began = time.time()
            job.kill_node(-lost)
            world = _formed(job, AGENTS - lost)
            took.append(max(world.values()) - began)
    return [
        Row(
            metric=f"{AGENTS} agents without torch re-form after one is killed",
            value=statistics.median(took),
            unit="s",
            bar=1.0,
            note=f"[{table.spread(took)}] n={len(took)}",
        )
    ]


def _formed(job: Job, size: int) -> dict[str, float]:
    """Wait for workers in a world of ``size``; return when each was started (wall clock)."""

    def look() -> dict[str, float] | None:
        files = [f for f in job.traces.glob("*.world") if f.read_text().strip() == str(size)]
        return {f.stem: f.stat().st_mtime for f in files} if len(files) == size else None

    return job.until(f"a world of {size}", 120, look)


def messages(home: Path, outcomes: Sequence[Outcome]) -> list[Row]:
    """Measure how the messages per change grow with the number of agents, with a coordinator that
    uses no sockets.
    """
    few, many = (_per_agent(crowd.simulate(agents)) for agents in CROWDS)
    return [
        Row(
            metric=f"messages of a coordinator per agent, {CROWDS[1]} agents, {change}",
            value=many[change],
            unit="messages",
            bar=round(_LINEAR * few[change], 2),
            note=f"bar: {_LINEAR:g} × that of {CROWDS[0]} agents",
        )
        for change in ("killed", "joined")
    ]


def _per_agent(changes: Mapping[str, crowd.Change]) -> dict[str, float]:
    size = changes["formed"].sent["Run"]
    return {
        name: (change.sent.total() + change.heard.total()) / size
        for name, change in changes.items()
    }


def first_step(home: Path, outcomes: Sequence[Outcome]) -> list[Row]:
    """Start a job of one process; measure the time from the command to the first step."""
    known = launchers.known(home)
    names = (OURS, table.TUNED)
    took: dict[str, list[float]] = {name: [] for name in names}
    for round in range(ROUNDS + 2):
        for name in names if round % 2 else names[::-1]:
            took[name].append(_fresh(known[name]))
    return [
        Row(
            metric="fresh job of one process: command to first step",
            value=statistics.median(took[OURS]),
            unit="s",
            peer="torchrun",
            peer_value=statistics.median(took[table.TUNED]),
            note=f"[{table.spread(took[OURS])}] n={len(took[OURS])}",
        )
    ]


def _fresh(launcher: Launcher) -> float:
    command = [launcher.program, "--standalone", "--nproc-per-node=1", launcher.script]
    with running(lambda index: command, environment(launcher), "fresh") as job:
        began = time.monotonic()
        job.start()
        pids = job.world(1, 1, 60)
        return next(w.steps[0].at for w in job.workers() if w.pid in pids) - began


def kills(home: Path, outcomes: Sequence[Outcome]) -> list[Row]:
    """Kill many nodes while the processes of the others stay; no kill may cost far more than the
    median.
    """
    launcher = launchers.known(home)[table.IN_PROCESS]
    chance, seen, stuck = random.Random(1), [], 0
    with begun(launcher, 3) as job:
        for turn in range(KILLS):
            if turn:
                job.start()
            old = job.world(3, 5 + chance.randrange(20), 120)
            try:
                outcome = stage(job, launcher, KILL, turn, old)
            except Stuck:  # what was measured before it counts, and so does it
                stuck = 1
                break
            assert outcome.change is not None
            seen.append(outcome.change)
    gaps = [change.gap_seconds for change in seen] + [launcher.patience_seconds] * stuck
    return [
        Row(
            metric=f"slowest of {KILLS} kills of a node, {launcher.name}: gap",
            value=max(gaps),
            unit="s",
            bar=KILL_SECONDS,
            note=f"median {statistics.median(gaps):.3g}, n={len(gaps)}"
            + (", the last one stuck" if stuck else ""),
        ),
        Row(
            metric=f"steps lost in {KILLS} kills, {launcher.name}",
            value=sum(change.steps_lost for change in seen),
            unit="steps",
            bar=0,
        ),
    ]


def session(home: Path, outcomes: Sequence[Outcome]) -> list[Row]:
    """Measure how much longer a step takes in a session than under plain DDP."""
    launcher = launchers.known(home)[table.IN_PROCESS]
    took: dict[str, list[float]] = {"session": [], "plain": []}
    for turn in range(ROUNDS):
        for kind in sorted(took, reverse=bool(turn % 2)):
            took[kind].append(_steady(launcher, kind))
    more = [mine - plain for mine, plain in zip(took["session"], took["plain"], strict=True)]
    return [
        Row(
            metric="session, time per step beside plain DDP",
            value=1e6 * statistics.median(more),
            unit="µs",
            bar=1e6 * STEADY * _STEP_SECONDS,
            note=f"[{table.spread(1e6 * each for each in more)}] n={len(more)}; bar: "
            f"{STEADY:.1%} of a step of {1e3 * _STEP_SECONDS:g} ms",
        )
    ]


def _steady(launcher: Launcher, kind: str) -> float:
    """Return the median seconds of a step of two processes, of the slower one."""
    script = str(launchers.SCRIPTS / "steady.py")
    command = [launcher.program, "--standalone", "--nproc-per-node=2", script, kind]
    with running(lambda index: command, environment(launcher), f"steady-{kind}") as job:
        job.start()

        def look() -> list[float] | None:
            files = list(job.traces.glob("steady-*"))
            said = [file.read_text() for file in files]
            return [float(each) for each in said] if len(said) == 2 and all(said) else None

        return max(job.until("steps", 120, look))


def _single(outcomes: Sequence[Outcome], event: str) -> float | None:
    """Return the median gap of a single such event, if it was measured."""
    seen = [change.gap_seconds for change in table.changes(outcomes, OURS, event)]
    return statistics.median(seen) if seen else None


MEASUREMENTS: Mapping[str, Measurement] = {
    "first-step": first_step,
    "hung-peer": hung_peer,
    "bursts": bursts,
    "coordinator": coordinator,
    "many-agents": many_agents,
    "messages": messages,
    "slow-end": ending.slow_end,
    "async-save": saving.async_save,
    "save-intervals": saving.save_intervals,
    "kills": kills,
    "session": session,
}
