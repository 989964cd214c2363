"""Optimus: the job that saves the most time per accelerator grows first, with exact remaining times
(Peng et al., EuroSys 2018).
"""

from collections.abc import Mapping, Sequence

from brain.simulator.placing import Placement, UsableNode
from brain.simulator.policies.rounds import Contender, FreeCapacity


class Optimus:
    """Gives each job its smallest size, shortest jobs first, and then grows jobs step by step.

    The job that saves the most seconds per accelerator grows first, until no job gains or no
    accelerator is left. The policy is given the exact time to the end at every size, which the
    original has to estimate.
    """

    def allot(
        self, jobs: Sequence[Contender], machines: Sequence[UsableNode]
    ) -> Mapping[str, Placement]:
        """Return the placement of each job that should run."""
        room = FreeCapacity(machines)
        kinds, sizes = _smallest(jobs, room)
        _grow({job.key: job for job in jobs}, kinds, sizes, room.count())
        kept = {
            job.key: job.placement
            for job in jobs
            if len(job.placement) == sizes.get(job.key) and room.keep(job.placement)
        }
        for job in sorted(jobs, key=lambda job: -sizes.get(job.key, 0)):
            if job.key in sizes and job.key not in kept:
                found = room.take(sizes[job.key], kinds[job.key])
                if found is not None:
                    kept[job.key] = found
        return kept


def _smallest(
    jobs: Sequence[Contender], room: FreeCapacity
) -> tuple[dict[str, str], dict[str, int]]:
    """Return the kind and first size of each job that gets accelerators; a running job keeps its
    kind.
    """
    left, kinds, sizes = room.count(), dict[str, str](), dict[str, int]()
    first = next(iter(left))

    def order(job: Contender) -> tuple[int, float, float]:
        kind = room.kind(job.placement) or first
        return -job.priority, job.seconds_left(job.sizes[0], kind), job.arrived_seconds

    for job in sorted(jobs, key=order):
        own = room.kind(job.placement)
        kind = own if own else max(left, key=lambda name: left[name])
        if left[kind] >= job.sizes[0]:
            kinds[job.key], sizes[job.key] = kind, job.sizes[0]
            left[kind] -= job.sizes[0]
    return kinds, sizes


def _grow(
    jobs: Mapping[str, Contender],
    kinds: Mapping[str, str],
    sizes: dict[str, int],
    capacity: dict[str, int],
) -> None:
    left = dict(capacity)
    for key, size in sizes.items():
        left[kinds[key]] -= size
    gains = {key: _gain(jobs[key], size, kinds[key]) for key, size in sizes.items()}
    while gains:
        key = max(gains, key=lambda key: gains[key][0])
        gain, larger = gains[key]
        kind, step = kinds[key], larger - sizes[key]
        if gain <= 0 or step > left[kind]:
            del gains[key]
            continue
        left[kind] -= step
        sizes[key] = larger
        gains[key] = _gain(jobs[key], larger, kind)


def _gain(job: Contender, size: int, kind: str) -> tuple[float, int]:
    """Return the seconds saved per accelerator by the next larger size, and that size."""
    larger = next((each for each in job.sizes if each > size), None)
    if larger is None:
        return 0.0, size
    saved = job.seconds_left(size, kind) - job.seconds_left(larger, kind)
    return saved / (larger - size), larger
