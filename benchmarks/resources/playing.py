"""Simulates a made-up job under a policy that decides the job's size and amounts."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from benchmarks.resources.dlrm import Floats, Job, Size

#: Seconds between checkpoints; when a job that never ends is given up.
_SAVE, _LIMIT = 600.0, 7 * 24 * 3600.0
#: The most that a job may have of all roles together, its chief included.
MOST_REPLICAS = 48
#: Spread of what is read, and of a rate from reading to reading.
_NOISE = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The measurements of a stepping job in the last seconds."""

    at: float
    seconds: float
    #: Steps of the job so far, and those that its owner declared.
    steps: float
    of_steps: float
    steps_per_second: float
    worker_cpus: Floats
    server_cpus: Floats
    worker_bytes: Floats
    server_bytes: Floats
    #: Share of the scheduler's periods in which a quota stopped a replica.
    stopped: float


class Policy(Protocol):
    """Decides the size and amounts of a job."""

    @property
    def reads_seconds(self) -> float:
        """Return the seconds between two readings."""
        ...

    def begin(self, declared: Size) -> Size:
        """Return the job's first size and amounts."""
        ...

    def see(self, reading: Reading) -> Size:
        """Return the job's size and amounts from now on, given a reading."""
        ...

    def killed(self, at: float, server: int) -> tuple[Size, float]:
        """Called when a server ran out of memory: return the job's next size, and the seconds until
        it starts.
        """
        ...

    def started(self, at: float) -> None:
        """Called when a job that had stopped makes steps again."""
        ...

    def stops(self, had: Size, has: Size) -> bool:
        """Return True if the change stops all of the job's processes."""
        ...


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The course of a job."""

    seconds: float = 0.0
    kills: int = 0
    changes: int = 0
    #: Processor seconds, and byte seconds, that were used and that were reserved.
    cpus: float = 0.0
    reserved_cpus: float = 0.0
    bytes: float = 0.0
    reserved_bytes: float = 0.0


def play(job: Job, policy: Policy, seed: int) -> Outcome:
    """Simulate a job to its end."""
    random, found = np.random.default_rng([seed, 7]), Outcome()
    size, steps, saved, saved_at, stopped = policy.begin(job.declared), 0.0, 0.0, 0.0, 0.0
    tick = policy.reads_seconds
    while steps < job.steps and found.seconds < _LIMIT:
        found.seconds += tick
        at = found.seconds
        _reserve(found, size, tick)
        if stopped > 0:
            stopped -= tick
            if stopped <= 0:
                policy.started(at)
            continue
        pace = job.pace(size)
        rate = pace.steps_per_second * float(np.exp(random.normal(0, _NOISE)))
        steps += rate * tick
        servers = job.memory(min(steps, job.steps), size.servers)
        workers = job.worker_bytes * (1 - 0.1 * random.random(size.workers))
        fullest = int(servers.argmax())
        if servers[fullest] > size.server.memory_bytes:
            found.kills += 1
            size, waits = policy.killed(at, fullest)
            steps, saved_at, stopped = saved, at, waits + job.restart_seconds
            continue
        found.cpus += tick * float(pace.worker_cpus.sum() + pace.server_cpus.sum())
        found.bytes += tick * float(workers.sum() + servers.sum())
        if at - saved_at >= _SAVE:
            saved, saved_at = steps, at
        has = policy.see(
            Reading(
                at=at,
                seconds=tick,
                steps=steps,
                of_steps=job.steps,
                steps_per_second=rate,
                worker_cpus=pace.worker_cpus * np.exp(random.normal(0, _NOISE, size.workers)),
                server_cpus=pace.server_cpus * np.exp(random.normal(0, _NOISE, size.servers)),
                worker_bytes=workers,
                server_bytes=servers,
                stopped=pace.stopped,
            )
        )
        if has != size:
            found.changes += 1
            if policy.stops(size, has):
                saved, saved_at, stopped = steps, at, job.restart_seconds
            size = has
    return found


def _reserve(found: Outcome, size: Size, seconds: float) -> None:
    found.reserved_cpus += seconds * (
        size.workers * size.worker.cpus + size.servers * size.server.cpus
    )
    found.reserved_bytes += seconds * (
        size.workers * size.worker.memory_bytes + size.servers * size.server.memory_bytes
    )
