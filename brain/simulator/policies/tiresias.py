"""Least attained service first, in two queues (Gu et al., *Tiresias*, NSDI 2019)."""

from collections.abc import Mapping, Sequence

from brain.simulator.placing import Placement, UsableNode
from brain.simulator.policies.rounds import Contender, FreeCapacity

#: Accelerator-seconds after which a job falls into the second queue: 16 accelerator-hours.
THRESHOLD = 16 * 3600.0


class Tiresias:
    """Discretised two-dimensional least attained service, without knowledge of durations.

    Jobs that have used less than ``THRESHOLD`` accelerator-seconds form the first queue, and all
    others the second; within a queue, jobs are sorted by arrival. Jobs have the requested size, and
    are stopped if a preceding job needs their accelerators.
    """

    def allot(
        self, jobs: Sequence[Contender], machines: Sequence[UsableNode]
    ) -> Mapping[str, Placement]:
        """Return the placement of each job that should run."""
        chosen = _admitted(jobs, FreeCapacity(machines))
        room = FreeCapacity(machines)
        placed = {job.key: job.placement for job in chosen if room.keep(job.placement)}
        for job in chosen:
            if job.key not in placed:
                found = room.take(job.wanted)
                if found is not None:
                    placed[job.key] = found
        return placed


def _admitted(jobs: Sequence[Contender], room: FreeCapacity) -> list[Contender]:
    """Return the jobs that should run, as if none ran yet: in this policy stopping is free."""
    order = sorted(
        jobs, key=lambda job: (-job.priority, job.attained >= THRESHOLD, job.arrived_seconds)
    )
    return [job for job in order if room.keep(job.placement) or room.take(job.wanted) is not None]
