"""``make bench-turn``: measures the cost of one turn of a pool, on SQLite and one core.

    one job       from 2,000 samples in the store to a stored plan; with four workers, of which a
                  turn reads the last minute, and with 32 workers, whose samples are all from that
                  minute
    2,000 jobs    which share 512 nodes; a tenth of them have new samples since the last turn

The benchmark runs the service's own ``cycle.turn`` on a database like the service's. Worlds and
samples are stored as agents and collectors would have them stored. Seconds are processor time; the
notes give the elapsed time, which also depends on the disk and on other programs. An older commit
(``base``) first runs its own version of this program, in the same run.
"""

import argparse
import cProfile
import gc
import json
import os
import pstats
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from benchmarks.base import BASE, checkout
from benchmarks.report import Row, publish
from brain import cycle, lifecycle
from brain.db import SqlStores, prepare
from brain.pool.rounds import Memo
from brain.ports import Stores, Transaction
from brain.settings import Settings
from brain.types.allocation import Bounds
from brain.types.job import Checkpoint, JobDocument, JobId, JobState, OptimizeMode
from brain.types.resources import Node, NodeName, PoolName, Resources
from brain.types.telemetry import Phase, SampleSource, SourceId, ThroughputSample
from brain.types.world import Cause, Member, Replica, ReplicaState, World

POOL = PoolName("bench")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
#: Of the one job: replicas of eight processes, each of which sends a sample a second.
SIZE, SAMPLES = 4, 2_000
ROUNDS = 15
JOBS, NODES, PER_NODE, ACTIVE = 2_000, 512, 8, 0.1
TURNS = 5
#: How much slower than the older commit's a turn may be.
SLOWER = 1.5


def main() -> None:
    """Measure and print the rows; exit with 1 if a bar is not met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", choices=["one", "many"], help="show where the time goes")
    chosen = parser.parse_args().profile
    if chosen:
        profiled(chosen)
        return
    before = based()
    few, crowd = one_job(each=1), one_job(each=PER_NODE)
    cold, warm = many_jobs()
    rows = [
        Row(
            metric="one job, 2,000 samples of 4 workers, store to plan, median",
            value=1000 * statistics.median(taken.cpu for taken in few),
            unit="ms",
            bar=20.0,
            note=told(few),
        ),
        Row(
            metric="one job, 2,000 samples of 32 workers within the minute that is read",
            value=1000 * statistics.median(taken.cpu for taken in crowd),
            unit="ms",
            note=told(crowd),
        ),
        Row(
            metric="2,000 jobs, a tenth with new samples, a round, median",
            value=statistics.median(taken.cpu for taken in warm),
            unit="s",
            bar=5.0,
            note=told(warm),
        ),
        Row(
            metric="the first turn after a start, 2,000 jobs of which nothing is known",
            value=cold.cpu,
            unit="s",
            note=told([cold]),
        ),
    ]
    publish("turn", "One turn of a pool", [beside(row, before) for row in rows])


def based() -> Mapping[str, float]:
    """Return the results of the older commit's own program, by metric."""
    with tempfile.TemporaryDirectory(prefix="brain-bench-base-") as place:
        older = checkout(Path(place), "brain", "benchmarks", "migrations")
        program = [sys.executable, "-P", "-m", "benchmarks.turn"]
        environment = {**os.environ, "PYTHONPATH": str(older)}
        # It ends with 1 where it misses a bar of its own: that is no news here.
        subprocess.run(program, cwd=older, env=environment, stdout=subprocess.DEVNULL, check=False)
        found = json.loads((older / "benchmarks/results/turn.json").read_text())
        return {row["metric"]: row["value"] for row in found}


def beside(row: Row, before: Mapping[str, float]) -> Row:
    """Return a row with the older commit's value and a bar of one and a half times that value.

    >>> row = Row(metric="a turn", value=1.4, unit="s")
    >>> beside(row, {"a turn": 1.0}).met, beside(row, {"a turn": 0.9}).met
    (True, False)
    """
    peer = before[row.metric]
    return replace(row, peer=BASE, peer_value=peer, ratio_bar=round(1 / SLOWER, 3))


class Taken(NamedTuple):
    """The seconds of a turn: processor time and elapsed time."""

    cpu: float
    wall: float


def told(taken: Sequence[Taken]) -> str:
    """Return the facts that are needed to interpret a median."""
    most, wall = max(one.cpu for one in taken), statistics.median(one.wall for one in taken)
    return f"{len(taken)} turns, at most {most:.3g} s; until over {wall:.3g} s"


@contextmanager
def timed(into: list[Taken]) -> Iterator[None]:
    """Measure the time of the block."""
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    yield
    into.append(Taken(time.process_time() - cpu, time.perf_counter() - wall))


def profiled(chosen: str) -> None:
    """Run one of the two measurements under the profiler."""
    profile = cProfile.Profile()
    (one_job if chosen == "one" else many_jobs)(profile)
    pstats.Stats(profile).sort_stats("cumulative").print_stats(60)


def one_job(profile: cProfile.Profile | None = None, *, each: int = PER_NODE) -> list[Taken]:
    """Measure a turn that reads the samples of a job, fits a model, and stores a plan.

    All jobs are in one database, each in a pool of its own. The first job only warms up what is
    warm in a service that has run for a second.
    """
    taken: list[Taken] = []
    now, ranks = BEGIN + timedelta(minutes=30), SIZE * each
    seconds = SAMPLES // ranks
    with database() as stores:
        for number in range(ROUNDS + 1):
            pool = PoolName(f"bench-{number}")
            with stores.transaction() as tx:
                nodes(tx, pool, count=16, now=now)
                alone = OptimizeMode.SINGLE_JOB
                id = submit(tx, number, pool, mode=alone, size=SIZE, most=16, each=each)
                start(tx, id, pool, size=SIZE, first_node=0, each=each)
                news = samples(id, ranks, now - timedelta(seconds=seconds), seconds, each=each)
                tx.telemetry.add(news, received_at=now)
            with timed(taken):
                turn = turned(stores, now, Memo(pool), profile if number else None)
            assert [plan.job for plan in turn.plans] == [id], turn.decisions
    return taken[1:]


def many_jobs(profile: cProfile.Profile | None = None) -> tuple[Taken, list[Taken]]:
    """Measure the first turn, and later turns in which a tenth of the jobs have new samples."""
    chance = random.Random(1)
    with database() as stores:
        now = BEGIN + timedelta(minutes=30)
        sizes = populate(stores, now, chance)
        memo = Memo(POOL)
        taken: list[Taken] = []
        with timed(taken):
            turned(stores, now, memo)
        for _ in range(TURNS):
            now += timedelta(seconds=SETTINGS.round_seconds)
            told = chance.sample(sorted(sizes), round(ACTIVE * JOBS))
            with stores.transaction() as tx:
                nodes(tx, POOL, count=NODES, now=now)
                news = [
                    sample
                    for id in told
                    for sample in samples(id, sizes[id], now - timedelta(seconds=12), 12)
                ]
                tx.telemetry.add(news, received_at=now)
            with timed(taken):
                turn = turned(stores, now, memo, profile)
            assert turn.round is not None
    return taken[0], taken[1:]


def turned(
    stores: Stores, now: datetime, memo: Memo, profile: cProfile.Profile | None = None
) -> cycle.Turn:
    """Run a turn, under the profiler if one is given."""
    if profile is not None:
        return profile.runcall(cycle.turn, stores, memo.pool, SETTINGS, now, memo=memo)
    return cycle.turn(stores, memo.pool, SETTINGS, now, memo=memo)


SETTINGS = Settings(policy_mode="auto", stale_seconds=600.0)


@contextmanager
def database() -> Iterator[Stores]:
    """Create an empty database."""
    with tempfile.TemporaryDirectory(prefix="brain-bench-") as place:
        url = f"sqlite:///{Path(place) / 'brain.db'}"
        prepare(url)
        with closing(SqlStores(url)) as stores:
            yield stores


def populate(stores: Stores, now: datetime, chance: random.Random) -> dict[JobId, int]:
    """Store jobs of one to four replicas on nodes of eight accelerators; return their sizes."""
    sizes: dict[JobId, int] = {}
    place = 0
    with stores.transaction() as tx:
        nodes(tx, POOL, count=NODES, now=now)
    for begin in range(0, JOBS, 100):
        with stores.transaction() as tx:
            for number in range(begin, begin + 100):
                size = chance.choice([1, 2])
                id = submit(tx, number, POOL, mode=OptimizeMode.CLUSTER, size=size, most=4)
                start(tx, id, POOL, size=size, first_node=place)
                step = chance.uniform(0.05, 0.5)
                news = samples(id, size, now - timedelta(seconds=12), 12, step_seconds=step)
                tx.telemetry.add(news, received_at=now)
                sizes[id] = size
                place += size
    return sizes


def nodes(tx: Transaction, pool: PoolName, *, count: int, now: datetime) -> None:
    """Store the nodes."""
    capacity = Resources(cpu_millis=64_000, memory_bytes=2**38, gpus=PER_NODE)
    for number in range(count):
        name = NodeName(f"{pool}-{number:04}")
        tx.nodes.put(Node(name=name, pool=pool, capacity=capacity, accelerator="A100", seen_at=now))


def submit(
    tx: Transaction,
    number: int,
    pool: PoolName,
    *,
    mode: OptimizeMode,
    size: int,
    most: int,
    each: int = 1,
) -> JobId:
    """Store a job that was admitted and runs."""
    id = JobId(f"0197f000-0000-7000-8000-{number:012}")
    document = JobDocument(
        name=f"job-{number}",
        command=("python", "train.py"),
        replicas=Bounds(min=1, max=most, start=size),
        resources=Resources(gpus=each),
        processes_per_replica=each,
        checkpoint=Checkpoint(path="last.pt"),
        optimize_mode=mode,
    )
    job = lifecycle.submit(
        tx, document, job_id=id, owner="ada", pool=pool, settings=SETTINGS, now=BEGIN
    )
    tx.jobs.put(replace(job, state=JobState.RUNNING, reason="it trains"))
    return id


def start(
    tx: Transaction, id: JobId, pool: PoolName, *, size: int, first_node: int, each: int = 1
) -> None:
    """Store a job's first world, on the accelerators from ``first_node`` on."""
    where = [
        NodeName(f"{pool}-{(first_node + rank * each) // PER_NODE:04}") for rank in range(size)
    ]
    members = tuple(
        Member(replica=rank, group_rank=rank, processes=each, node=node, address="127.0.0.1:1")
        for rank, node in enumerate(where)
    )
    tx.worlds.put(
        World(
            job=id,
            epoch=1,
            generation=0,
            cause=Cause.START,
            members=members,
            formed_at=BEGIN,
            stepping_at=BEGIN,
        )
    )
    tx.worlds.put_replicas(
        id,
        [
            Replica(id=rank, node=node, state=ReplicaState.RUNNING, generation=0, started_at=BEGIN)
            for rank, node in enumerate(where)
        ],
    )


def samples(
    id: JobId,
    ranks: int,
    since: datetime,
    seconds: int,
    *,
    step_seconds: float = 0.1,
    each: int = 1,
) -> Sequence[ThroughputSample]:
    """Return one sample for each rank and second."""
    begun = round((since - BEGIN).total_seconds())
    steps = max(1, round(1 / step_seconds))
    return [
        ThroughputSample(
            place=SampleSource(
                job=id,
                source=SourceId(f"{id}-{rank}"),
                replica=rank // each,
                local_rank=rank % each,
                rank=rank,
                epoch=1,
                generation=0,
            ),
            measured_at=since + timedelta(seconds=second),
            sequence=begun + second,
            phase=Phase.TRAINING,
            nodes=-(-ranks // PER_NODE),
            replicas=ranks // each,
            processes=ranks,
            accelerator="A100",
            local_batch=64,
            accumulation=1,
            steps=steps,
            step=(begun + second) * steps,
            step_seconds=step_seconds * (1 + 0.001 * (second % 3)),
            step_seconds_mean=step_seconds,
            data_wait_seconds=0.001,
            examples_per_second=64 / step_seconds,
        )
        for second in range(seconds)
        for rank in range(ranks)
    ]


if __name__ == "__main__":
    main()
