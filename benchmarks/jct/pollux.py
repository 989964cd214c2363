"""The rules of Pollux's simulator: rounds, restarts, batch sizes and progress.

Time advances in rounds of 60 s. In a round every job trains with the GPUs that it got at the end of
the last round; then the policy is asked. A job whose list of nodes changed pauses for 30 s, also at
its first start, and holds its GPUs meanwhile. A job that ends within a round holds its GPUs until
the end of the round. The job's agent divides its batch among its GPUs. The end of an epoch is
rounded to whole seconds, as in the simulator that produced the published results, so a fraction of
a second is lost or gained (Qiao et al., OSDI 2021; AdaptDL, branch ``osdi21-artifact``,
``simulator/simulator.py``).
"""

import csv
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks.jct.applications import Application

#: Of the published runs.
ROUND_SECONDS = 60
RESTART_SECONDS = 30.0
NODES, GPUS_PER_NODE = 16, 4
_EPSILON = 1e-8


@dataclass(kw_only=True)
class Job:
    """A training run."""

    name: str
    application: Application
    submitted: int
    #: What its owner asked for; adaptive policies do not look at it.
    wished_replicas: int
    wished_batch: int
    #: What its owner calls what it runs; by its application, unless a variant renames it.
    script: str = ""
    #: Times as many seconds a step as the tables say.
    slowdown: float = 1.0
    #: Examples per optimizer step; None: the policy sets ``local_batch`` and ``accumulation``.
    batch: int | None = None
    #: GPUs per node, nodes in the order of the list that it was given.
    placement: tuple[int, ...] = ()
    local_batch: int = 0
    #: Micro-batches per optimizer step, at least 1.
    accumulation: int = 1
    pause: float = 0.0
    epoch: int = 0
    #: In steps of the first batch.
    progress: float = 0.0
    attained_gpu_seconds: float = 0.0
    #: -1 before the first start.
    restarts: int = -1
    completed: float | None = None

    def __post_init__(self) -> None:
        self.script = self.script or self.application.name

    @property
    def replicas(self) -> int:
        """Return the number of GPUs that the job holds."""
        return sum(self.placement)

    @property
    def completion_seconds(self) -> float:
        """Return the seconds from submission to completion."""
        if self.completed is None:
            raise ValueError(f"{self.name} has not ended")
        return self.completed - self.submitted

    def place(self, nodes: Sequence[int], restart_seconds: float) -> None:
        """Give the job a node for each GPU; an empty list suspends the job."""
        self.placement = tuple(len(list(same)) for _, same in groupby(nodes))
        if self.placement:
            self.split()
            self.pause = restart_seconds
            self.restarts += 1

    def split(self) -> None:
        """Divide the job's batch among its GPUs."""
        replicas = self.replicas
        if self.batch is not None:
            self.local_batch, self.accumulation = share(self.application, self.batch, replicas)
        most = int(self.application.largest_batch / (replicas * self.accumulation))
        self.local_batch = min(self.local_batch, most)

    def train(self, start: float, seconds: float, slowdown: float = 0.0) -> None:
        """Let the job train from ``start`` on.

        Args:
            start: Virtual time.
            seconds: How long.
            slowdown: Share of its speed that neighbours on its nodes take.
        """
        if not self.placement or self.completed is not None:
            return
        waited = min(self.pause, seconds)
        self.pause -= waited
        self.attained_gpu_seconds += waited * self.replicas
        end = start + seconds
        now = start + waited
        while now < end and self.completed is None:
            spent = self._until(end - now, self._speed() * (1 - slowdown))
            now += spent
            self.attained_gpu_seconds += spent * self.replicas
            if self.epoch == self.application.epochs:
                self.completed = now
            self.split()

    def _until(self, seconds: float, speed: float) -> float:
        """Train to the end of the time or of the epoch; return the seconds that this took."""
        goal = self.application.progress[self.epoch + 1]
        if self.progress + speed * seconds < goal:
            self.progress += speed * seconds
            return seconds
        spent = round((goal - self.progress) / speed)
        self.progress = goal
        self.epoch += 1
        return spent

    def _speed(self) -> float:
        """Return the progress per second."""
        application, replicas = self.application, self.replicas
        batch = replicas * self.local_batch * self.accumulation
        step, sync = application.seconds(self.placement, self.local_batch)
        square, variance = application.gradients(batch, self.epoch)
        scale = batch / application.first_batch
        gain = (variance + square) / (variance / scale + square)
        return gain / (step + (self.accumulation - 1) * (step - sync)) / self.slowdown


def share(application: Application, batch: int, replicas: int) -> tuple[int, int]:
    """Return the local batch size and the number of micro-batches of a batch that is divided among
    replicas.

    A single replica with more than the first batch size takes at least two micro-batches, because
    otherwise its gradient noise could not be measured.
    """
    each = math.ceil(batch / replicas - _EPSILON)
    accumulation = math.ceil(each / application.largest_local - _EPSILON)
    if replicas == 1 and batch > application.first_batch:
        accumulation = max(2, accumulation)
    return math.ceil(each / accumulation - _EPSILON), accumulation


#: A node per GPU for each job that runs.
Allocation = Mapping[str, Sequence[int]]


class Policy(Protocol):
    """A policy that the benchmark evaluates."""

    def admit(self, job: Job) -> None:
        """Set how the job's batch size is chosen, before anything runs."""
        ...

    def decide(
        self, now: float, jobs: Sequence[Job], capacity: Sequence[int], current: Allocation
    ) -> Allocation:
        """Return the GPUs that each job gets.

        Args:
            now: Virtual time in seconds.
            jobs: Jobs that were submitted and have not ended, in the order of the workload.
            capacity: GPUs of each node.
            current: The GPUs that these jobs hold.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The course of a workload under a policy."""

    completion_seconds: Mapping[str, float]
    makespan_seconds: float
    gpu_hours: float
    restarts_per_job: float
    #: CPU of a decision.
    decision_ms_mean: float
    decision_ms_max: float

    @property
    def mean_seconds(self) -> float:
        """Return the average completion time in seconds."""
        return float(np.mean(list(self.completion_seconds.values())))

    @property
    def p99_seconds(self) -> float:
        """Return the completion time in seconds that one job in a hundred exceeds."""
        return float(np.percentile(list(self.completion_seconds.values()), 99))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of the simulated cluster."""

    nodes: int = NODES
    gpus_per_node: int = GPUS_PER_NODE
    round_seconds: int = ROUND_SECONDS
    restart_seconds: float = RESTART_SECONDS
    #: Share of its speed that a distributed job loses beside another one.
    interference: float = 0.0


def workload(file: Path, applications: Mapping[str, Application]) -> list[Job]:
    """Return the jobs of a workload file."""
    with file.open() as lines:
        return [
            Job(
                name=row["name"],
                application=applications[row["application"]],
                submitted=int(row["time"]),
                wished_replicas=int(row["num_replicas"]),
                wished_batch=int(row["batch_size"]),
            )
            for row in csv.DictReader(lines)
        ]


def simulate(jobs: Sequence[Job], policy: Policy, rules: Rules | None = None) -> Outcome:
    """Run ``jobs`` to their ends under ``policy``."""
    rules = rules or Rules()
    for job in jobs:
        policy.admit(job)
    capacity = [rules.gpus_per_node] * rules.nodes
    now, current, spent = 0, dict[str, Sequence[int]](), list[float]()
    while any(job.completed is None for job in jobs):
        slow = _crowded(current) if rules.interference else set()
        for job in jobs:
            held = current.get(job.name, ())
            beside = len(set(held)) > 1 and not slow.isdisjoint(held)
            job.train(now, rules.round_seconds, rules.interference if beside else 0.0)
        now += rules.round_seconds
        active = [job for job in jobs if job.submitted <= now and job.completed is None]
        if active:
            current = {job.name: current[job.name] for job in active if job.name in current}
            chosen, took = timed(policy, now, active, capacity, current)
            spent.append(took)
            _fits(chosen, capacity)
            for job in active:
                held = list(chosen.get(job.name, ()))
                if held != list(current.get(job.name, ())):
                    job.place(held, rules.restart_seconds)
            current = {name: held for name, held in chosen.items() if held}
    return outcome(jobs, spent)


def _crowded(current: Allocation) -> set[int]:
    """Return the nodes with more than one distributed job."""
    spread = Counter(node for held in current.values() if len(set(held)) > 1 for node in set(held))
    return {node for node, count in spread.items() if count > 1}


def _fits(chosen: Allocation, capacity: Sequence[int]) -> None:
    used = Counter(node for held in chosen.values() for node in held)
    for node, count in used.items():
        if count > capacity[node]:
            raise ValueError(f"the policy put {count} replicas on node {node}, which has fewer")


def timed(
    policy: Policy, now: float, jobs: Sequence[Job], capacity: Sequence[int], current: Allocation
) -> tuple[Allocation, float]:
    """Return a decision, and the milliseconds of CPU time that it took."""
    begun = time.process_time()
    chosen = policy.decide(now, jobs, capacity, current)
    return chosen, 1e3 * (time.process_time() - begun)


def outcome(jobs: Sequence[Job], spent: Sequence[float]) -> Outcome:
    """Return the outcome of jobs that have all ended."""
    return Outcome(
        completion_seconds={job.name: job.completion_seconds for job in jobs},
        makespan_seconds=max(job.completed or 0.0 for job in jobs),
        gpu_hours=sum(job.attained_gpu_seconds for job in jobs) / 3600,
        restarts_per_job=float(np.mean([max(0, job.restarts) for job in jobs])),
        decision_ms_mean=float(np.mean(spent)),
        decision_ms_max=float(np.max(spent)),
    )
