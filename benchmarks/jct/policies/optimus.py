"""Optimus (Peng et al., EuroSys 2018) with an oracle: it gives GPUs to the jobs that save most time
with them.

The policy knows the true step times and the remaining steps, as in Pollux's evaluation.
"""

from collections.abc import Sequence

from benchmarks.jct.applications import Application
from benchmarks.jct.policies.filling import fill
from benchmarks.jct.pollux import GPUS_PER_NODE, Allocation, Job, share


class Optimus:
    """Gives every job one GPU while GPUs are free, and then the next GPU to the job with the
    largest gain.
    """

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, int, int], float] = {}

    def admit(self, job: Job) -> None:
        """Use the batch size that the job's owner requested."""
        job.batch = job.wished_batch

    def decide(
        self, now: float, jobs: Sequence[Job], capacity: Sequence[int], current: Allocation
    ) -> Allocation:
        """Divide the GPUs by marginal gains; a job that keeps its size keeps its nodes."""
        del now
        sizes = self._sizes(jobs, sum(capacity))
        held = {name: nodes for name, nodes in current.items() if len(nodes) == sizes[name]}
        missing = [
            (name, size)
            for name, size in sorted(sizes.items(), key=lambda item: item[1])
            if size and name not in held
        ]
        return fill(held, missing, capacity)

    def _sizes(self, jobs: Sequence[Job], left: int) -> dict[str, int]:
        sizes, gains = dict[str, int](), dict[str, float]()
        for job in jobs:
            sizes[job.name] = min(1, left)
            left -= sizes[job.name]
            gains[job.name] = self._gain(job, 1) if left and sizes[job.name] else 0.0
        active = {job.name: job for job in jobs}
        while left > 0:
            best = max(gains, key=lambda name: gains[name])
            if gains[best] <= 0:
                break
            sizes[best] += 1
            gains[best] = self._gain(active[best], sizes[best])
            left -= 1
        return sizes

    def _gain(self, job: Job, replicas: int) -> float:
        """Return the seconds that one more replica saves."""
        if replicas >= _most(job):
            return 0.0
        saved = self._step(job, replicas) - self._step(job, replicas + 1)
        return saved * _left(job)

    def _step(self, job: Job, replicas: int) -> float:
        key = (job.application.name, job.wished_batch, replicas)
        if key not in self._seconds:
            self._seconds[key] = _step(job.application, job.wished_batch, replicas)
        return self._seconds[key]


def _most(job: Job) -> int:
    if job.application.fixed:
        return 1
    return job.wished_batch // job.application.smallest_local


def _left(job: Job) -> float:
    """Return the number of remaining steps."""
    last = job.application.epochs - 1
    if last <= job.epoch:
        return 1.0
    steps = job.application.iterations
    return steps(job.wished_batch, last) - steps(job.wished_batch, job.epoch)


def _step(application: Application, batch: int, replicas: int) -> float:
    """Return the true step seconds on as few nodes as possible; a single replica takes two
    micro-batches.
    """
    whole, rest = divmod(replicas, GPUS_PER_NODE)
    placement = (GPUS_PER_NODE,) * whole + ((rest,) if rest else ())
    local, accumulation = share(application, batch, replicas)
    if replicas == 1 and accumulation == 1:
        local, accumulation = (batch + 1) // 2, 2
    local = min(local, int(application.largest_batch / (replicas * accumulation)))
    step, sync = application.seconds(placement, local)
    return step + (step - sync) * (accumulation - 1)
