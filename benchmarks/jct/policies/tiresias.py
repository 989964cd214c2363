"""Tiresias (Gu et al., NSDI 2019): least attained service in two queues, at requested sizes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.jct.policies.filling import fill
from benchmarks.jct.pollux import Allocation, Job

#: GPU-seconds after which a job yields to those that had less.
QUEUE_GPU_SECONDS = 16 * 3600


@dataclass
class Tiresias:
    """Serves jobs that have used less than 16 GPU-hours first; each queue is in arrival order."""

    #: Names in order of arrival.
    _first: list[str] = field(default_factory=list)
    _second: list[str] = field(default_factory=list)
    _running: dict[str, bool] = field(default_factory=dict)
    _ran: dict[str, float] = field(default_factory=dict)
    _looked: float = 0.0

    def admit(self, job: Job) -> None:
        """Use the batch size that the job's owner requested."""
        job.batch = job.wished_batch

    def decide(
        self, now: float, jobs: Sequence[Job], capacity: Sequence[int], current: Allocation
    ) -> Allocation:
        """Run the jobs that fit, one queue after the other."""
        active = {job.name: job for job in jobs}
        self._queue(now, active)
        left = sum(capacity)
        held = dict(current)
        for name in [*self._first, *self._second]:
            wanted = active[name].wished_replicas
            self._running[name] = wanted <= left
            if self._running[name]:
                left -= wanted
            else:
                held.pop(name, None)
        missing = [
            (name, active[name].wished_replicas)
            for name in [*self._first, *self._second]
            if self._running[name] and name not in held
        ]
        return fill(held, missing, capacity)

    def _queue(self, now: float, active: dict[str, Job]) -> None:
        """Add the service of the last round, and move jobs that have had enough to the second
        queue.
        """
        for name in active:
            if self._running.get(name):
                self._ran[name] = self._ran.get(name, 0.0) + now - self._looked
        self._looked = now
        known = {*self._first, *self._second}
        self._first = [name for name in self._first if name in active]
        self._first += [name for name in active if name not in known]
        done = [
            name
            for name in active
            if name in self._first
            and self._ran.get(name, 0.0) * active[name].wished_replicas >= QUEUE_GPU_SECONDS
        ]
        self._first = [name for name in self._first if name not in done]
        self._second = [name for name in self._second if name in active] + done
