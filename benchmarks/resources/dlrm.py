"""Made-up jobs, drawn from a seed, that resemble the training of recommendation models: their
needs, and their owners' reservations.

Keys follow Zipf's law, so a few groups of rows make their server hot. Embeddings grow with the
number of distinct keys in the examples (Heaps' law); some jobs later get an additional feature.
Workers run on nodes of different speed. Rates follow from queues: the step of a worker is the
larger of two times: its own time plus its waits at each server (approximate mean value analysis;
Schweitzer, 1979), or the time that its processors need. The product predicts rates with another
formula.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

GIB = 2.0**30
#: Groups of rows; each is on one server.
_GROUPS = 4096
_ROUNDS = 40
#: How sharply a step goes over from the workers' own time to that of their processors.
_SHARP = 16.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """The amounts of each replica of a role."""

    cpus: float
    memory_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a job: replicas and the amounts of each, by role."""

    workers: int
    servers: int
    worker: Amount
    server: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The speed and resource use of a job at one size."""

    steps_per_second: float
    worker_cpus: Floats
    server_cpus: Floats
    #: Share of time in which a worker's processors, and the fullest server's, are at their limit.
    stopped: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The true properties of a job, which no policy sees."""

    #: What its owner reserves.
    declared: Size
    steps: float
    #: Seconds of a step that are a worker's own, and processor seconds of it.
    own_seconds: float
    worker_seconds: float
    #: Processor seconds of all servers per step.
    server_seconds: float
    #: Share of the requests, and server modulo any number, of each group of rows.
    weights: Floats
    places: NDArray[np.int64]
    #: Bytes of embeddings at the end; exponent of Heaps' law; share of the steps after which a
    #: feature comes, and what it adds.
    rows_bytes: float
    exponent: float
    feature_from: float
    feature_share: float
    base_bytes: float
    worker_bytes: float
    #: Speed of the node that a worker's place is on.
    speeds: Floats
    restart_seconds: float

    def shares(self, servers: int) -> Floats:
        """Return the share of the requests that each of ``servers`` gets."""
        return np.bincount(self.places % servers, self.weights, minlength=servers)

    def pace(self, size: Size) -> Pace:
        """Return the steps per second of all workers together, and their resource use."""
        speeds = self.speeds[: size.workers]
        demand = self.server_seconds * self.shares(size.servers)
        service = demand / size.server.cpus
        own, processors = self.own_seconds / speeds, self.worker_seconds / size.worker.cpus
        waits, others = service.copy(), (size.workers - 1) / size.workers
        for _ in range(_ROUNDS):
            seconds = own + waits.sum()
            each = (seconds**_SHARP + processors**_SHARP) ** (-1 / _SHARP)
            rate = float(each.sum())
            waits = 0.5 * waits + 0.5 * service * (1 + others * np.minimum(rate * waits, 1e3))
        bound = float((1 / service).min())
        rate, each = min(rate, bound), each * min(1.0, bound / rate)
        busy = max(float((each * processors).max()), float((rate * service).max()))
        return Pace(
            steps_per_second=rate,
            worker_cpus=each * self.worker_seconds,
            server_cpus=rate * demand,
            stopped=float(np.clip((busy - 0.9) / 0.1, 0, 1)),
        )

    def memory(self, steps: float, servers: int) -> Floats:
        """Return the bytes of each server after ``steps``; rows are spread evenly, apart from
        chance.
        """
        done = steps / self.steps
        rows = done**self.exponent * (1 - self.feature_share)
        if done > self.feature_from:
            late = (done - self.feature_from) / (1 - self.feature_from)
            rows += self.feature_share * late**self.exponent
        held = np.bincount(self.places % servers, minlength=servers) / _GROUPS
        return self.base_bytes + self.rows_bytes * rows * held


def jobs(seed: int, count: int) -> Sequence[Job]:
    """Return ``count`` jobs."""
    return [_job(np.random.default_rng([seed, each])) for each in range(count)]


def _job(random: np.random.Generator) -> Job:
    workers, servers = int(random.integers(4, 13)), int(random.integers(2, 5))
    own = random.uniform(0.2, 1.0)
    needed = random.uniform(2, 8)  # processors that keep a worker at its own pace
    asked = np.exp(random.uniform(np.log(0.5), np.log(2.0)))  # of servers, for each worker
    rows = np.exp(random.uniform(np.log(8), np.log(96))) * GIB
    base, worker = random.uniform(1, 3) * GIB, random.uniform(2, 8) * GIB
    weights = np.arange(1, _GROUPS + 1) ** -random.uniform(0.8, 1.1)
    # What owners reserve: mostly too much, sometimes too little (DLRover-RM's account of a fleet).
    processors, memory, most = (np.exp(random.normal(np.log(m), 0.5)) for m in (1.7, 1.8, 2.0))
    job = Job(
        declared=Size(
            workers=workers,
            servers=servers,
            worker=Amount(
                cpus=max(1.0, round(needed * processors)),
                memory_bytes=worker * max(1.3, float(most)),
            ),
            server=Amount(
                cpus=max(2.0, round(asked * workers / servers * np.exp(random.normal(0.3, 0.5)))),
                memory_bytes=base + rows / servers * float(memory),
            ),
        ),
        steps=1.0,
        own_seconds=own,
        worker_seconds=own * needed,
        server_seconds=own * asked,
        weights=weights / weights.sum(),
        places=random.permutation(_GROUPS * 60)[:_GROUPS],
        rows_bytes=rows,
        exponent=random.uniform(0.4, 0.8),
        feature_from=random.uniform(0.3, 0.7),
        feature_share=float(random.choice([0.0, 0.0, 0.0, 0.3])),
        base_bytes=base,
        worker_bytes=worker,
        speeds=np.exp(random.normal(0, 0.1, 64)) * np.where(random.random(64) < 0.1, 0.5, 1.0),
        restart_seconds=random.uniform(45, 120),
    )
    hours = random.uniform(3, 10)
    return replace(job, steps=hours * 3600 * job.pace(job.declared).steps_per_second)
