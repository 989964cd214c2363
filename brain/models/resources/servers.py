"""Parameter servers: what they bound, from one running configuration (operational analysis).

    D_i = U_i c_i / X                     processor seconds of server i per step (utilisation law)
    Z   = w / X - sum_i D_i / c_i         what a worker takes beside its servers
    X(w, c) = ((w / (Z + sum_i D_i / c_i))^-g + (min_i c_i / D_i)^-g)^(-1/g)

w workers, c_i processors of server i, U_i their busy share, X steps per second of all workers
together. Everything but g is measured in one configuration (models.md section 3.5, where the rules
and their constants are, too; after Denning and Buzen, 1978). Tried on made-up servers only.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from brain.errors import Undetermined

#: How sharply the bound of the workers turns into that of the servers.
SHARPNESS = 4.0
#: Busy share above which a server is full, how far above the others' median it is hot, and the
#: share that a good size leaves it at.
FULL, HOT, EASY = 0.8, 1.3, 0.7
#: The next worker must bring this share of what the first one brought.
LEAST_SHARE = 0.5
#: A worker below this share of the others' median, for so many windows, is replaced.
SLOW_SHARE, SLOW_WINDOWS = 0.5, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterServer:
    """One parameter server as it is."""

    cpus: float
    #: Processors that it uses.
    used_cpus: float

    @property
    def busy(self) -> float:
        """Share of its processors that is in use."""
        return self.used_cpus / self.cpus


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedJob:
    """A job with parameter servers, observed at one configuration."""

    workers: int
    steps_per_second: float
    servers: tuple[ParameterServer, ...]

    def __post_init__(self) -> None:
        """Refuse what nothing follows from.

        Raises:
            Undetermined: no step, no server, or a use that cannot be one.
        """
        rate = self.steps_per_second
        if self.workers < 1 or not self.servers or not 0 < rate < math.inf:
            raise Undetermined(
                "no steps of workers beside parameter servers were measured", code="no-steps"
            )
        for one in self.servers:
            if not (0 < one.cpus < math.inf and 0 <= one.used_cpus < math.inf):
                raise Undetermined(
                    f"a server that uses {one.used_cpus:g} of {one.cpus:g} processors says nothing",
                    code="no-usage",
                )

    @property
    def demands(self) -> tuple[float, ...]:
        """Processor seconds of each server per step."""
        return tuple(one.used_cpus / self.steps_per_second for one in self.servers)

    @property
    def think_seconds(self) -> float:
        """Seconds of a worker's step without service by a server; waiting in queues is included."""
        waited = sum(d / one.cpus for d, one in zip(self.demands, self.servers, strict=True))
        return max(0.0, self.workers / self.steps_per_second - waited)

    def rate(self, workers: int, *, cpus: Sequence[float] | None = None) -> float:
        """Steps per second of so many workers, with other processors of the servers if given.

        >>> server = ParameterServer(cpus=4, used_cpus=1)
        >>> job = ServedJob(workers=2, steps_per_second=10, servers=(server,))
        >>> round(job.rate(2), 1), round(job.rate(32), 1)
        (10.0, 40.0)
        """
        given = tuple(one.cpus for one in self.servers) if cpus is None else tuple(cpus)
        return self._rate(workers, self.demands, given)

    def _rate(self, workers: int, demands: Sequence[float], cpus: Sequence[float]) -> float:
        waited = sum(d / c for d, c in zip(demands, cpus, strict=True))
        asked = workers / max(self.think_seconds + waited, 1e-12)
        bound = min((c / d for d, c in zip(demands, cpus, strict=True) if d > 0), default=0.0)
        if not bound:
            return asked
        # At small loads the p-norm is the workers' term but for rounding.
        return float((asked**-SHARPNESS + bound**-SHARPNESS) ** (-1 / SHARPNESS))

    def resharded(self, servers: int) -> tuple[float, ...]:
        """Demands of so many servers: the fullest stays as far above their mean.

        >>> one, other = (ParameterServer(cpus=4, used_cpus=used) for used in (3, 1))
        >>> job = ServedJob(workers=2, steps_per_second=1, servers=(one, other))
        >>> job.resharded(3), job.resharded(1)
        ((2.0, 1.0, 1.0), (4.0,))
        """
        total = sum(self.demands)
        skew = max(self.demands) * len(self.demands) / total if total else 1.0
        most = min(total, skew * total / servers)
        return (
            (most, *[(total - most) / (servers - 1)] * (servers - 1)) if servers > 1 else (total,)
        )

    def best(self, replicas: int) -> tuple[int, float]:
        """Of so many workers and servers, return how many should be servers, and the rate.

        No server is given up, because what it holds may not fit the others; and no worker comes
        while one is full.

        >>> one, other = (ParameterServer(cpus=4, used_cpus=used) for used in (3.9, 1))
        >>> job = ServedJob(workers=2, steps_per_second=10, servers=(one, other))
        >>> job.best(5)[0], replace(job, servers=(other, other)).best(5)[0]
        (3, 2)
        """
        cpus, least = max(one.cpus for one in self.servers), len(self.servers)
        if not self.grows():
            least = max(least, replicas - self.workers)
        rates = {
            n: self._rate(replicas - n, self.resharded(n), [cpus] * n)
            for n in range(least, replicas)
        }
        chosen = max(rates, key=lambda servers: (rates[servers], -servers))
        return chosen, rates[chosen]

    def grows(self) -> bool:
        """True if more workers may come: none may while a server is full."""
        return max(one.busy for one in self.servers) <= FULL


def hot_server(servers: Sequence[ParameterServer]) -> int | None:
    """The server that holds the others up: full, and far above their median; None: none does.

    >>> hot_server([ParameterServer(cpus=4, used_cpus=3.8), ParameterServer(cpus=4, used_cpus=1)])
    0
    """
    if not servers:
        return None
    at = max(range(len(servers)), key=lambda index: servers[index].busy)
    usual = median(one.busy for one in servers)
    return at if servers[at].busy > FULL and servers[at].busy > HOT * usual else None


def relieved(job: ServedJob, steps_per_second: float) -> tuple[ParameterServer, ...]:
    """The servers with as many processors as that rate needs, at an easy share; none shrinks."""
    return tuple(
        replace(one, cpus=max(one.cpus, demand * steps_per_second / EASY))
        for one, demand in zip(job.servers, job.demands, strict=True)
    )


def servers_needed(job: ServedJob, steps_per_second: float, *, cpus: float) -> int:
    """Return the number of servers of ``cpus`` that the rate needs, with the load spread evenly.

    >>> server = ParameterServer(cpus=4, used_cpus=2)
    >>> job = ServedJob(workers=2, steps_per_second=10, servers=(server,))
    >>> servers_needed(job, 40, cpus=4)
    3
    """
    return max(1, math.ceil(sum(job.demands) * steps_per_second / (EASY * cpus)))


def workers_worth(job: ServedJob, most: int) -> int:
    """The most workers of whom the last still brings half of what the first brought."""
    if not job.grows():
        return min(job.workers, most)
    first, chosen = job.rate(1), 1
    while chosen < most and job.rate(chosen + 1) - job.rate(chosen) >= LEAST_SHARE * first:
        chosen += 1
    return chosen


def stragglers(windows: Sequence[Sequence[float]]) -> list[int]:
    """Workers whose rate is below half of the median in each of the last windows.

    Args:
        windows: Steps per second of each worker, newest window last.
    """
    last = windows[-SLOW_WINDOWS:]
    if len(last) < SLOW_WINDOWS:
        return []
    limits = [SLOW_SHARE * median(window) for window in last]
    return [
        worker
        for worker in range(len(last[0]))
        if all(window[worker] < limit for window, limit in zip(last, limits, strict=True))
    ]
