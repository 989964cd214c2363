"""Simulates rounds of 60 seconds: jobs train, then the policy divides the cluster again."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks.jct.pollux import Outcome
from benchmarks.jct.sia.cluster import HETEROGENEOUS, Arrival, Kind, Tables, workload
from benchmarks.jct.sia.jobs import Grant, Job
from benchmarks.jct.variants import epochs, lasting

ROUND_SECONDS = 60.0

#: What each job gets; absent: nothing.
Division = Mapping[str, Grant]


class Policy(Protocol):
    """A policy that the benchmark evaluates."""

    def admit(self, job: Job) -> None:
        """Set how a job's batch size is chosen, before the job runs."""
        ...

    def decide(
        self, now: float, jobs: Sequence[Job], kinds: Sequence[Kind], current: Division
    ) -> Division:
        """Return the division of the cluster among jobs.

        Args:
            now: Virtual seconds.
            jobs: Jobs that were submitted and have not ended, in the order of the workload.
            kinds: The kinds of nodes of the cluster.
            current: The accelerators that these jobs hold.
        """
        ...


def simulate(
    file: Path,
    tables: Mapping[str, Tables],
    policy: Policy,
    kinds: Sequence[Kind] = HETEROGENEOUS,
) -> Outcome:
    """Run the workload of a file to its end under ``policy``."""
    return play(workload(file), tables, policy, kinds)


def play(
    arrivals: Sequence[Arrival],
    tables: Mapping[str, Tables],
    policy: Policy,
    kinds: Sequence[Kind] = HETEROGENEOUS,
) -> Outcome:
    """Run jobs that arrive to their ends under ``policy``."""
    jobs = [
        Job(
            name=one.name,
            application=one.application,
            tables=_lasting(tables[one.application], one.length),
            submitted=one.seconds,
            asked_batch=one.batch,
        )
        for one in arrivals
    ]
    for job in jobs:
        policy.admit(job)
    now, current, spent = 0.0, dict[str, Grant](), list[float]()
    while any(job.finished is None for job in jobs):
        for job in jobs:
            job.step(ROUND_SECONDS)
        now += ROUND_SECONDS
        active = [job for job in jobs if job.submitted <= now and job.finished is None]
        if not active:
            continue
        current = {job.name: current[job.name] for job in active if job.name in current}
        begun = time.process_time()
        chosen = policy.decide(now, active, kinds, current)
        spent.append(1e3 * (time.process_time() - begun))
        check(chosen, kinds)
        for job in active:
            job.place(chosen.get(job.name))
        current = dict(chosen)
    return outcome(jobs, spent)


def _lasting(tables: Tables, share: float) -> Tables:
    """Return the tables of a job that trains for a share of the usual epochs."""
    if share == 1:
        return tables
    return {kind: lasting(table, epochs(table, share)) for kind, table in tables.items()}


def check(division: Division, kinds: Sequence[Kind]) -> None:
    """Raise for a division that does not fit its nodes.

    Raises:
        ValueError: more GPUs on a node than it has, or a node that there is not.
    """
    used: Counter[tuple[str, int]] = Counter()
    for grant in division.values():
        if len(set(grant.nodes)) != len(grant.shape):
            raise ValueError(f"{grant} names a node twice or too few")
        for node, gpus in zip(grant.nodes, grant.shape, strict=True):
            used[grant.kind, node] += gpus
    room = {(kind.name, node): kind.gpus_per_node for kind in kinds for node in range(kind.nodes)}
    for place, gpus in used.items():
        if gpus > room.get(place, 0):
            raise ValueError(f"{gpus} GPUs on {place}, which has {room.get(place, 0)}")


def outcome(jobs: Sequence[Job], spent: Sequence[float]) -> Outcome:
    """Return the outcome of jobs that have all ended."""
    return Outcome(
        completion_seconds={job.name: (job.finished or 0.0) - job.submitted for job in jobs},
        makespan_seconds=max(job.finished or 0.0 for job in jobs),
        gpu_hours=sum(job.gpu_seconds for job in jobs) / 3600,
        restarts_per_job=float(np.mean([job.restarts or 0 for job in jobs])),
        decision_ms_mean=float(np.mean(spent)),
        decision_ms_max=float(np.max(spent)),
    )
