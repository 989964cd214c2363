"""A real job lacks something: Brain finds it by what its probe and collector read, a plan mends it.

Quotas are real control groups. Row (e) of ``make bench-resources`` is made of these jobs; they take
minutes of a quiet machine, so no test runs them.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from brain import calls
from brain.client import Call
from brain.types.plan import PlanKind, PlanState, ScalePlan
from brain.types.resources import Resources
from brain.views import JobDetail, JobEdit
from scaler.local.limits import ControlGroups
from tests.end_to_end.test_amounts import judged, limit
from tests.harness import FAST, Brain

MIB = 2**20
STARVED = "processors are fully used: reserve more CPU for loading"
THROTTLED = "throttled a replica in"
SETTINGS = {**FAST, "verify_seconds": 120}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """A need as a person hears of it, and what came of the plan against it."""

    #: As ``brain explain`` prints it.
    explained: str
    plan: ScalePlan
    #: What the kernel holds each replica to afterwards.
    limit: str
    #: Examples per second while it lacked something, and afterwards; 0: not looked at.
    rates: tuple[float, float] = (0.0, 0.0)
    #: Seconds until memory runs out, as ``/metrics`` has them when a leak is told.
    left_seconds: float = 0.0


def permitted(place: Path) -> str:
    """Why this machine lets nobody make control groups of memory and CPU; empty if it does."""
    limits = ControlGroups(place)
    tried = limits.begin("probe", Resources(), Resources())
    limits.end(tried)
    lacking = {"memory", "cpu"} - set(tried.groups)
    return f"no control groups of {' and '.join(sorted(lacking))} may be made" if lacking else ""


def command(brain: Brain, *words: str) -> str:
    """What the command ``brain`` prints."""
    return subprocess.run(
        [sys.executable, "-m", "brain.cli", *words],
        env=os.environ | {"BRAIN_HOME": str(brain.home)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def metric(brain: Brain, name: str) -> float:
    """The first value of a metric."""
    text = brain.send(Call(method="GET", path="/metrics", reads=bytes)).decode()
    return float(next(line.split()[-1] for line in text.splitlines() if line.startswith(name)))


def rate(detail: JobDetail, *, above: float = 0.0, below: float = float("inf")) -> float | None:
    """Examples per second of the last minute, if they are between these."""
    found = detail.job.throughput and detail.job.throughput.examples_per_second
    return found if found and above < found < below else None


def mend(brain: Brain, name: str, *options: str, finds: str, replicas: int = 1) -> Mended:
    """Hold a job to too little CPU, and approve Brain's plan against it once it is slow.

    Plans for another reason than what it ``finds`` are approved, too: a peak before the quota, say.
    """
    job = brain.submit(
        "needy.py",
        *options,
        name=name,
        replicas={"min": replicas, "max": replicas},
        resources={"cpuMillis": 900},
        policy={"mode": "approve"},
    )
    quiet = brain.until("a throughput", 90, job, rate)

    def used(_: JobDetail) -> float | None:
        tried = brain.send(calls.edit(job, JobEdit(cpu_millis=2000), dry_run=True)).plan
        facts = {fact.label: fact.value for fact in tried.explanation.evidence}
        cores = float(facts.get("CPU used", 1))
        return cores if cores < 0.12 else None

    # Enough for a script that waits, far too little once it computes, on however busy a machine.
    millis = round(1500 * brain.until("a minute without its start", 120, job, used))
    made = brain.send(calls.edit(job, JobEdit(cpu_millis=millis))).plan
    judged(brain, job, made.generation)
    (brain.work(name) / "busy").touch()

    def proposed(detail: JobDetail) -> ScalePlan | None:
        plan = detail.job.plan
        own = plan is not None and plan.kind is PlanKind.RESIZE
        return plan if own and plan is not None and plan.state is PlanState.PROPOSED else None

    plan = brain.until("a plan of Brain", 150, job, proposed)
    while finds not in (explained := command(brain, "explain", job)):
        command(brain, "approve", job)
        judged(brain, job, plan.generation)
        plan = brain.until("another plan of Brain", 150, job, proposed)
    slow = brain.until("a slow job", 90, job, lambda detail: rate(detail, below=0.8 * quiet))
    command(brain, "approve", job)
    plan = judged(brain, job, plan.generation)
    fast = brain.until("a faster job", 90, job, lambda detail: rate(detail, above=1.1 * slow))
    found = Mended(
        explained=explained,
        plan=plan,
        limit=limit(brain, job, "cpu", "cpu.max", "cpu.cfs_quota_us").split()[0],
        rates=(slow, fast),
    )
    brain.send(calls.cancel(job))
    brain.finished(job)
    return found


def renew(brain: Brain, name: str, *, mib: int, keeps: float, saves: float) -> Mended:
    """Let a job leak in ``mib`` MiB until Brain restarts it at a save, by its own plan."""
    job = brain.submit(
        "needy.py",
        f"--keeps={keeps}",
        f"--saves={saves}",
        name=name,
        replicas={"min": 1, "max": 1},
        resources={"cpuMillis": 500, "memoryBytes": mib * MIB},
        policy={"mode": "auto"},
    )

    def leaks(detail: JobDetail) -> bool:
        assert detail.world is None or detail.world.epoch == 1, detail.worlds
        return any(one.kind == "MemoryLeak" for one in detail.job.conditions)

    brain.until("the warning of its leak", 1800, job, leaks)
    explained = command(brain, "explain", job)
    left_seconds = metric(brain, "brain_memory_lasts_seconds")
    plan = brain.until("its restart", left_seconds, job, lambda _: restart(brain, job))
    plan = judged(brain, job, plan.generation)
    held = limit(brain, job, "memory", "memory.max", "memory.limit_in_bytes")
    brain.send(calls.cancel(job))
    brain.finished(job)
    return Mended(explained=explained, plan=plan, limit=held, left_seconds=left_seconds)


def restart(brain: Brain, job: str) -> ScalePlan | None:
    """Brain's newest plan to restart a job."""
    plans = [view.plan for view in brain.send(calls.plans_of(job)).items]
    return next((plan for plan in plans if plan.kind is PlanKind.RESTART), None)
