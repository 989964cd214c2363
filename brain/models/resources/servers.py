"""Parameter servers: a bound on throughput, from measurements of one configuration.

    D_i = U_i c_i / X                     processor seconds of server i per step (utilisation law)
    Z   = w / X - sum_i D_i / c_i         time of a worker without its servers
    X(w, c) = ((w / (Z + sum_i D_i / c_i))^-g + (min_i c_i / D_i)^-g)^(-1/g)

The symbols are: w workers, c_i processors of server i, U_i their busy share, X steps per second of
all workers together. All except g are measured in one configuration (operational analysis, Denning
and Buzen, 1978). models.md section 3.5 has the rules and constants. This model was tested only on
simulated servers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from brain.errors import Undetermined

#: Exponent of the transition from the workers' bound to the servers' bound.
SHARPNESS = 4.0
#: Busy share above which a server is full; excess over the others' median above which it is hot;
#: busy share at which a good size leaves it.
FULL, HOT, EASY = 0.8, 1.3, 0.7
#: Factor on the use of the busiest worker up to which workers of another size keep what they
#: reserve: their nodes differ, and readings of minutes do not show all of the need.
_AMPLE = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterServer:
    cpus: float
    #: Processors that the server uses.
    used_cpus: float

    @property
    def busy(self) -> float:
        """Return the share of the server's processors that is in use."""
        return self.used_cpus / self.cpus


class Division(NamedTuple):
    """A division of replicas into servers and workers."""

    servers: int
    #: Processors of each server.
    cpus: float
    #: Predicted steps per second.
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedJob:
    """A job with parameter servers, observed at one configuration."""

    workers: int
    steps_per_second: float
    servers: tuple[ParameterServer, ...]
    #: Most processors that a server may get with another size; at most the present ones: no more.
    most_cpus: float = 0.0
    #: The most processors, and the most bytes, that a worker uses.
    worker_cpus: float = math.inf
    worker_bytes: float = math.inf

    def __post_init__(self) -> None:
        """Raise for an observation from which nothing follows.

        Raises:
            Undetermined: there is no step, no server, or an impossible use.
        """
        rate = self.steps_per_second
        if self.workers < 1 or not self.servers or not 0 < rate < math.inf:
            raise Undetermined(
                "no steps of workers with parameter servers were measured", code="no-steps"
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
        """Return the processor seconds that each server spends on a step."""
        return tuple(one.used_cpus / self.steps_per_second for one in self.servers)

    @property
    def think_seconds(self) -> float:
        """Return the seconds that a worker's step spends outside of servers, including waits in
        their queues.
        """
        waited = sum(d / one.cpus for d, one in zip(self.demands, self.servers, strict=True))
        return max(0.0, self.workers / self.steps_per_second - waited)

    def rate(self, workers: int) -> float:
        """Return the steps per second of ``workers`` workers.

        >>> server = ParameterServer(cpus=4, used_cpus=1)
        >>> job = ServedJob(workers=2, steps_per_second=10, servers=(server,))
        >>> round(job.rate(2), 1), round(job.rate(32), 1)
        (10.0, 40.0)
        """
        service = [d / one.cpus for d, one in zip(self.demands, self.servers, strict=True)]
        return _rate(workers, self.think_seconds + sum(service), max(service))

    def fullest(self, servers: int) -> float:
        """Return the processor seconds per step of the fullest server, if there were ``servers``
        servers.

        The fullest server's load above an even share is assumed to come from rows of parameters
        that cannot be divided. This load stays on one server, and all other load is divided evenly.

        >>> one, other = (ParameterServer(cpus=4, used_cpus=used) for used in (3, 1))
        >>> job = ServedJob(workers=2, steps_per_second=1, servers=(one, other))
        >>> job.fullest(4), job.fullest(1)
        (2.5, 4.0)
        """
        total, present = sum(self.demands), len(self.demands)
        hot = 0.0 if present == 1 else (present * max(self.demands) - total) / (present - 1)
        return hot + (total - hot) / servers

    def best(self, replicas: int) -> Division:
        """Return the division of ``replicas`` with the highest rate; of equally fast divisions, the
        one with the fewest servers.

        No server is removed, because the rows of parameters that it holds may not fit into the
        memory of the other servers. Servers get enough processors to keep the fullest one's busy
        share at ``EASY``. No worker is added while a server is full and may get no more processors.

        >>> servers = tuple(ParameterServer(cpus=4, used_cpus=used) for used in (3.9, 1))
        >>> ServedJob(workers=2, steps_per_second=10, servers=servers).best(5).servers
        3
        >>> ServedJob(workers=2, steps_per_second=10, servers=servers, most_cpus=8).best(5)[:2]
        (2, 8)
        """
        least = len(self.servers)
        if not self.grows():
            least = max(least, replicas - self.workers)
        divided = (self._divided(servers, replicas - servers) for servers in range(least, replicas))
        return max(divided, key=lambda one: (one.rate, -one.servers))

    def _divided(self, servers: int, workers: int) -> Division:
        present, think = max(one.cpus for one in self.servers), self.think_seconds
        fullest, total = self.fullest(servers), sum(self.demands)
        asked = workers / max(think + total / max(present, self.most_cpus), 1e-12)
        cpus = max(present, min(self.most_cpus, fullest * asked / EASY))
        return Division(servers, cpus, _rate(workers, think + total / cpus, fullest / cpus))

    def ample(self, workers: int, rate: float) -> tuple[float, float]:
        """Return the processors and bytes that are ample for each of ``workers``, if all together
        make ``rate`` steps per second: twice what the busiest worker would use.

        >>> server = ParameterServer(cpus=4, used_cpus=1)
        >>> job = ServedJob(workers=2, steps_per_second=10, servers=(server,), worker_cpus=1.5)
        >>> job.ample(4, 20), job.ample(2, 15)
        ((3.0, inf), (4.5, inf))
        """
        faster = rate * self.workers / (workers * self.steps_per_second)
        return _AMPLE * max(1.0, faster) * self.worker_cpus, _AMPLE * self.worker_bytes

    def grows(self) -> bool:
        """Return True if workers may be added: no server is full, or all servers may get more
        processors.
        """
        present = max(one.cpus for one in self.servers)
        return self.most_cpus > present or max(one.busy for one in self.servers) <= FULL


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
    """Return the index of the server that delays the others; None if there is no such server.

    Such a server is full, and its load is far above the median load of all servers.

    >>> hot_server([ParameterServer(cpus=4, used_cpus=3.8), ParameterServer(cpus=4, used_cpus=1)])
    0
    """
    if not servers:
        return None
    at = max(range(len(servers)), key=lambda index: servers[index].busy)
    usual = median(one.busy for one in servers)
    return at if servers[at].busy > FULL and servers[at].busy > HOT * usual else None
