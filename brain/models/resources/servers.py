"""Parameter servers: their bound on throughput, from one running configuration (operational
analysis).

    D_i = U_i c_i / X                     processor seconds of server i per step (utilisation law)
    Z   = w / X - sum_i D_i / c_i         time of a worker without its servers
    X(w, c) = ((w / (Z + sum_i D_i / c_i))^-g + (min_i c_i / D_i)^-g)^(-1/g)

w workers, c_i processors of server i, U_i their busy share, X steps per second of all workers
together. Everything but g is measured in one configuration (after Denning and Buzen, 1978;
models.md section 3.5 has the rules and their constants). Tested on simulated servers only.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from brain.errors import Undetermined

#: Exponent of the transition from the workers' bound to the servers' bound.
SHARPNESS = 4.0
#: Busy share above which a server is full; excess over the others' median above which it is hot;
#: busy share at which a good size leaves it.
FULL, HOT, EASY = 0.8, 1.3, 0.7
#: Least gain of the next worker, as a share of the first one's.
LEAST_SHARE = 0.5
#: A worker below this share of the others' median, for this number of windows, is replaced.
SLOW_SHARE, SLOW_WINDOWS = 0.5, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterServer:
    """One parameter server, as observed."""

    cpus: float
    #: Processors that the server uses.
    used_cpus: float

    @property
    def busy(self) -> float:
        """Return the share of the server's processors that is in use."""
        return self.used_cpus / self.cpus


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedJob:
    """A job with parameter servers, observed at one configuration."""

    workers: int
    steps_per_second: float
    servers: tuple[ParameterServer, ...]

    def __post_init__(self) -> None:
        """Raise for an observation from which nothing follows.

        Raises:
            Undetermined: there is no step, no server, or an impossible use.
        """
        rate = self.steps_per_second
        if self.workers < 1 or not self.servers or not 0 < rate < math.inf:
            raise Undetermined(
                "no steps of workers beside parameter servers were measured", code="no-steps"
            )
        for one in self.servers:
            if not (0 < one.cpus < math.inf and 0 <= one.used_cpus < math.inf):
                raise Undetermined(
                    f"a server that uses {one.used_cpus:g} of {one.cpus:g} processors is not "
                    "loaded enough to measure",
                    code="no-usage",
                )

    @property
    def demands(self) -> tuple[float, ...]:
        """Return the processor seconds of each server per step."""
        return tuple(one.used_cpus / self.steps_per_second for one in self.servers)

    @property
    def think_seconds(self) -> float:
        """Return the seconds of a worker's step outside of servers; waiting in queues is
        included.
        """
        waited = sum(d / one.cpus for d, one in zip(self.demands, self.servers, strict=True))
        return max(0.0, self.workers / self.steps_per_second - waited)

    def rate(self, workers: int, *, cpus: Sequence[float] | None = None) -> float:
        """Return the steps per second of ``workers`` workers, with the servers' processors ``cpus``
        if given.

        >>> server = ParameterServer(cpus=4, used_cpus=1)
        >>> job = ServedJob(workers=2, steps_per_second=10, servers=(server,))
        >>> round(job.rate(2), 1), round(job.rate(32), 1)
        (10.0, 40.0)
        """
        given = tuple(one.cpus for one in self.servers) if cpus is None else tuple(cpus)
        service = [d / c for d, c in zip(self.demands, given, strict=True)]
        return _rate(workers, self.think_seconds + sum(service), max(service))

    def fullest(self, servers: int) -> float:
        """Return the demand of the fullest of ``servers`` servers.

        What the fullest one now has above an even share is taken for rows so hot that no division
        of them helps: they stay on one server, and all else is spread evenly.

        >>> one, other = (ParameterServer(cpus=4, used_cpus=used) for used in (3, 1))
        >>> job = ServedJob(workers=2, steps_per_second=1, servers=(one, other))
        >>> job.fullest(4), job.fullest(1)
        (2.5, 4.0)
        """
        total, present = sum(self.demands), len(self.demands)
        hot = 0.0 if present == 1 else (present * max(self.demands) - total) / (present - 1)
        return hot + (total - hot) / servers

    def best(self, replicas: int) -> tuple[int, float]:
        """Return how many of ``replicas`` should be servers, and the rate in steps per second.

        No server is given up, because its rows may not fit the others. No worker is added while a
        server is full.

        >>> one, other = (ParameterServer(cpus=4, used_cpus=used) for used in (3.9, 1))
        >>> job = ServedJob(workers=2, steps_per_second=10, servers=(one, other))
        >>> job.best(5)[0], replace(job, servers=(other, other)).best(5)[0]
        (3, 2)
        """
        cpus, least = max(one.cpus for one in self.servers), len(self.servers)
        if not self.grows():
            least = max(least, replicas - self.workers)
        step = self.think_seconds + sum(self.demands) / cpus
        rates = {
            n: _rate(replicas - n, step, self.fullest(n) / cpus) for n in range(least, replicas)
        }
        chosen = max(rates, key=lambda servers: (rates[servers], -servers))
        return chosen, rates[chosen]

    def grows(self) -> bool:
        """Return True if more workers may be added, which needs that no server is full."""
        return max(one.busy for one in self.servers) <= FULL


def _rate(workers: int, step_seconds: float, service_seconds: float) -> float:
    """Return the steps per second of workers whose step takes ``step_seconds`` without queues, of
    which ``service_seconds`` are at the fullest server.
    """
    asked = workers / max(step_seconds, 1e-12)
    if service_seconds <= 0:
        return asked
    # At small loads the p-norm equals the workers' term except for rounding.
    return float((asked**-SHARPNESS + service_seconds**SHARPNESS) ** (-1 / SHARPNESS))


def hot_server(servers: Sequence[ParameterServer]) -> int | None:
    """Return the index of the server that delays the others: full, and far above their median; None
    if none does.

    >>> hot_server([ParameterServer(cpus=4, used_cpus=3.8), ParameterServer(cpus=4, used_cpus=1)])
    0
    """
    if not servers:
        return None
    at = max(range(len(servers)), key=lambda index: servers[index].busy)
    usual = median(one.busy for one in servers)
    return at if servers[at].busy > FULL and servers[at].busy > HOT * usual else None


def relieved(job: ServedJob, steps_per_second: float) -> tuple[ParameterServer, ...]:
    """Return the servers with enough processors for that rate at an easy busy share; none
    shrinks.
    """
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
    """Return the largest number of workers of which the last one brings half of the first one's
    gain.
    """
    if not job.grows():
        return min(job.workers, most)
    first, chosen = job.rate(1), 1
    while chosen < most and job.rate(chosen + 1) - job.rate(chosen) >= LEAST_SHARE * first:
        chosen += 1
    return chosen


def stragglers(windows: Sequence[Sequence[float]]) -> list[int]:
    """Return the workers whose rate is below half of the median in each of the last windows.

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
