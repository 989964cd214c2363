"""``make bench-loop``: measures how much the probe adds to a step, and how fast the loop reacts.

    sample committed -> plan visible      from the last batch's 200 until a reader sees the plan
    plan approved -> world changed        from a person's approval to the new world's first step

The first time is measured through the API of a real service on SQLite, the second with a real
training script that saves every tenth step of 0.11 s.
"""

import random
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks import probe_cost
from benchmarks.report import Row, publish
from brain import calls
from brain.types.job import JobId
from brain.types.resources import NodeName
from brain.types.telemetry import Phase, SampleSource, SaveSample, SourceId, ThroughputSample
from brain.types.world import Cause, Member, WorldEvent, WorldReport
from brain.views import ResizeRequest
from tests.harness import Brain, running
from tests.patience import Patience

ROUNDS = 12
#: Nothing that a policy waits for on purpose; the tick is the product's.
AT_ONCE = {"tick_seconds": 2, "dwell_seconds": 0, "restart_seconds": 0.001}
RESIZES = 5


def main() -> None:
    """Measure and print the rows; exit with 1 if a bar is not met."""
    with tempfile.TemporaryDirectory(prefix="brain-bench-") as place:
        with running(Path(place) / "a", "--slots=4", settings=AT_ONCE) as brain:
            visible = [plan_latency_seconds(brain, turn) for turn in range(ROUNDS)]
        with running(Path(place) / "b", "--slots=4") as brain:
            changed, down = world_latencies_seconds(brain)
    rows = probe_cost.rows()
    rows += [
        Row(
            metric="sample committed → plan visible, median",
            value=statistics.median(visible),
            unit="s",
        ),
        Row(metric="sample committed → plan visible, worst", value=max(visible), unit="s"),
        Row(
            metric="plan approved → world changed, median",
            value=statistics.median(changed),
            unit="s",
        ),
        Row(metric="downtime of a change, median", value=statistics.median(down), unit="s"),
    ]
    publish("loop", "The probe's cost and the loop's latency", rows)


def plan_latency_seconds(brain: Brain, turn: int) -> float:
    """Return the seconds from the batch that completes the measurements until the plan based on
    them is visible.

    The job's command sleeps; worlds and samples are sent in the form in which agents send them.
    """
    job = brain.submit("idle.py", name=f"latency-{turn}", replicas={"min": 1, "max": 2})
    now = datetime.now(UTC)
    member = Member(
        replica=0, group_rank=0, processes=1, node=NodeName("bench"), address="127.0.0.1:1"
    )
    brain.until("admission", 20, job, lambda d: d.job.state != "Queued" or None)
    agent = brain.agent(job)
    for event in (WorldEvent.FORMED, WorldEvent.STEPPING):
        report = WorldReport(
            job=JobId(job),
            event=event,
            epoch=100,
            generation=0,
            cause=Cause.START,
            members=(member,),
            at=now,
        )
        agent.send(calls.report_world(report))
    # A world report wakes the tick, samples do not: they come at any moment between two ticks.
    time.sleep(random.Random(turn).uniform(2, 4))
    now = datetime.now(UTC)
    agent.send(calls.telemetry(samples(JobId(job), now), sent_at=now))
    committed, patience = time.monotonic(), Patience(60)
    with brain.client as client:
        while not client.send(calls.plans_of(job)).items:
            if patience.over:
                sys.exit(f"no plan within 60 s: {client.send(calls.recommendation(job))}")
            time.sleep(0.02)
    taken = time.monotonic() - committed
    brain.send(calls.cancel(job))
    return taken


def samples(job: JobId, now: datetime) -> list[ThroughputSample | SaveSample]:
    """Return forty steps of one worker in windows of four, one second per step, and a save."""
    place = SampleSource(
        job=job,
        source=SourceId(f"bench-{job}"),
        replica=0,
        local_rank=0,
        rank=0,
        epoch=100,
        generation=0,
    )
    windows = [
        ThroughputSample(
            place=place,
            measured_at=now - timedelta(seconds=12 - n),
            sequence=n,
            phase=Phase.TRAINING,
            nodes=1,
            replicas=1,
            processes=1,
            accelerator="cpu",
            local_batch=64,
            accumulation=1,
            steps=4,
            step=4 * n,
            step_seconds=0.25,
            step_seconds_mean=0.25,
            data_wait_seconds=0.01,
            examples_per_second=256.0,
        )
        for n in range(12)
    ]
    saved = SaveSample(
        place=place,
        measured_at=now,
        sequence=12,
        path="bench.pt",
        step=44,
        save_seconds=0.1,
        size_bytes=1000,
    )
    return [*windows, saved]


def world_latencies_seconds(brain: Brain) -> tuple[list[float], list[float]]:
    """Return, for each of several resizes, the seconds from the approval to the first step of the
    new world, and the downtime.
    """
    job = brain.submit("counted.py", "--steps=100000", replicas={"min": 1, "max": 2})
    brain.saved(job)
    changed, down = [], []
    for turn in range(RESIZES):
        epoch = brain.detail(job).world.epoch
        brain.send(calls.resize(job, ResizeRequest(replicas=2 - turn % 2)))
        asked = time.monotonic()
        world = brain.until(
            "the new world",
            60,
            job,
            lambda d, epoch=epoch: (
                d.world if d.world.epoch > epoch and d.world.stepping_at else None
            ),
        )
        changed.append(time.monotonic() - asked)
        down.append(world.downtime_seconds)
    brain.send(calls.cancel(job))
    return changed, down


if __name__ == "__main__":
    main()
