"""First come, first served, at the requested size."""

from collections.abc import Mapping, Sequence

from brain.simulator.placing import Placement, UsableNode
from brain.simulator.policies.rounds import Contender, FreeCapacity


class Fifo:
    """Starts jobs in the order of priority and arrival; a started job keeps its accelerators.

    A job that does not fit makes all jobs behind it wait.
    """

    def allot(
        self, jobs: Sequence[Contender], machines: Sequence[UsableNode]
    ) -> Mapping[str, Placement]:
        """Return the placement of each job that should run."""
        room = FreeCapacity(machines)
        chosen = {job.key: job.placement for job in jobs if room.keep(job.placement)}
        waiting = [job for job in jobs if job.key not in chosen]
        for job in sorted(waiting, key=lambda job: (-job.priority, job.arrived_seconds)):
            found = room.take(job.wanted)
            if found is None:
                break
            chosen[job.key] = found
        return chosen
