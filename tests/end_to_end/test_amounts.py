"""Amounts of a real job, edited while it trains: enforced by the kernel, verified, rolled back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from brain import calls
from brain.errors import BadInput
from brain.types.plan import PlanKind, PlanState, ScalePlan, Verdict
from brain.types.resources import Resources
from brain.views import JobDetail, JobEdit
from scaler.local.limits import ControlGroups
from tests.harness import FAST, Brain, running

GIB = 2**30


@pytest.fixture(scope="module")
def brain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brain]:
    home = tmp_path_factory.mktemp("amounts")
    limits = ControlGroups(home / "probe")
    tried = limits.begin("probe", Resources(), Resources())
    limits.end(tried)
    if set(tried.groups) != {"memory", "cpu"}:
        pytest.skip("this machine lets nobody make control groups of memory and CPU")
    with running(home / "home", "--slots=4", settings={**FAST, "verify_seconds": 90}) as brain:
        yield brain


def group(brain: Brain, job: str, controller: str) -> Path:
    """The control group of the job's first replica."""
    agents = [
        pid
        for pid, words in brain.processes()
        if "launcher.agent" in words and any(job in word for word in words)
    ]
    lines = Path(f"/proc/{agents[0]}/cgroup").read_text().splitlines()
    for line in lines:
        _, names, path = line.split(":", 2)
        if not names or controller in names.split(","):
            return Path("/sys/fs/cgroup") / names / path.strip("/")
    raise AssertionError(lines)


def limit(brain: Brain, job: str, controller: str, *names: str) -> str:
    where = group(brain, job, controller)
    return next((where / name).read_text().strip() for name in names if (where / name).exists())


def judged(brain: Brain, job: str, generation: int) -> ScalePlan:
    """The plan of a generation, once it was measured."""

    def look(detail: JobDetail) -> ScalePlan | None:
        plans = [view.plan for view in brain.send(calls.plans_of(job)).items]
        one = next(plan for plan in plans if plan.generation == generation)
        return one if one.state in (PlanState.VERIFIED, PlanState.ROLLED_BACK) else None

    return brain.until(f"plan {generation} judged", 120, job, look)


def test_memory_is_edited_while_it_trains_and_the_kernel_has_it_and_it_is_verified(brain: Brain):
    job = brain.submit(
        "counted.py",
        "--steps=100000",
        name="edited",
        replicas={"min": 1, "max": 1},
        resources={"cpuMillis": 1000, "memoryBytes": 3 * GIB},
    )
    names = ("memory.max", "memory.limit_in_bytes")
    brain.saved(job)
    assert limit(brain, job, "memory", *names) == str(3 * GIB)
    too_little = JobEdit(memory_bytes=32 << 20)
    with pytest.raises(BadInput, match=r"above the .* GiB that a replica uses now") as refused:
        brain.until(
            "a refusal once its use was read",
            60,
            job,
            lambda _: brain.send(calls.edit(job, too_little, dry_run=True)) is None,
        )
    assert refused.value.field == "memory_bytes"
    world = brain.detail(job).world

    made = brain.send(calls.edit(job, JobEdit(memory_bytes=2 * GIB))).plan
    assert "apply now" in made.explanation.next_step
    plan = judged(brain, job, made.generation)

    assert plan.outcome.verdict is Verdict.KEPT, plan.outcome.detail
    assert plan.outcome.downtime_seconds == 0.0
    detail = brain.detail(job)
    assert limit(brain, job, "memory", *names) == str(2 * GIB)
    assert detail.job.resources.memory_bytes == 2 * GIB
    assert [one.resources for one in detail.replicas] == [detail.job.resources]
    assert detail.world is not None
    assert world is not None
    assert detail.world.epoch == world.epoch, "nothing was restarted"
    where = group(brain, job, "memory")
    brain.send(calls.cancel(job))
    assert brain.finished(job).job.state == "Cancelled"
    brain.until("its group is removed", 60, job, lambda _: not where.exists())


@pytest.mark.slow
def test_cpu_that_is_too_little_for_its_bursts_is_rolled_back(brain: Brain):
    job = brain.submit(
        "bursts.py",
        name="bursts",
        replicas={"min": 1, "max": 1},
        policy={"mode": "auto"},
        optimizeMode="manual",
    )
    brain.until("a throughput", 90, job, lambda detail: detail.job.throughput)
    names = ("cpu.max", "cpu.cfs_quota_us")

    def read(_: JobDetail) -> float | None:
        tried = brain.send(calls.edit(job, JobEdit(cpu_millis=2000), dry_run=True)).plan
        facts = {fact.label: fact.value for fact in tried.explanation.evidence}
        used = float(facts.get("CPU used", 1))
        return used if used < 0.1 else None

    # Enough for a script that waits, far too little once it computes, on however busy a machine.
    millis = round(1500 * brain.until("a minute without its start", 120, job, read))
    made = brain.send(calls.edit(job, JobEdit(cpu_millis=millis))).plan
    quota = str(millis * 100)

    def has_quota(_: JobDetail) -> bool:
        return limit(brain, job, "cpu", *names).split()[0] == quota

    brain.until("the quota", 30, job, has_quota)
    (brain.work("bursts") / "busy").touch()
    missed = judged(brain, job, made.generation)

    assert (missed.state, missed.outcome.verdict) == (PlanState.ROLLED_BACK, Verdict.FELL_SHORT), (
        missed.outcome
    )
    assert "a CPU quota throttled a replica in" in missed.outcome.detail
    back = brain.detail(job).job.plan
    assert back is not None
    assert back.kind is PlanKind.ROLLBACK
    brain.until(
        "no quota", 60, job, lambda _: limit(brain, job, "cpu", *names).split()[0] in ("-1", "max")
    )
    brain.until("rolled back", 60, job, lambda d: d.job.resources.cpu_millis == 1000)
    brain.send(calls.cancel(job))
    assert brain.finished(job).job.state == "Cancelled"


@pytest.mark.slow
def test_loaders_of_a_script_that_asks_grow_with_the_cpus_of_a_plan(brain: Brain):
    job = brain.submit("loads.py", name="loads", replicas={"min": 1, "max": 1})
    said = brain.work("loads") / "loaders"
    brain.until("a throughput", 90, job, lambda detail: detail.job.throughput)
    assert said.read_text().split() == ["3"], "no quota holds it yet"

    for millis, workers in ((2000, "1"), (3000, "2")):
        brain.send(calls.edit(job, JobEdit(cpu_millis=millis)))
        brain.until(
            "other loaders", 60, job, lambda _, n=workers: said.read_text().split()[-1] == n
        )
    assert {world.epoch for world in brain.detail(job).worlds} == {1}, "nothing was restarted"
    brain.send(calls.cancel(job))
    brain.finished(job)
