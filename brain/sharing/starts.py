"""With how many replicas a job begins whose owner left that open."""

from dataclasses import dataclass

from brain.lifecycle import may_act
from brain.optimizer.sharing import shares
from brain.settings import Settings
from brain.types.job import Job

#: Of what is idle those that begin take so much together: idle accelerators cost nobody anything,
#: and whoever comes next shall find some. 0.25, 0.5 and 1 (8 replicas at most): completion times
#: of 0.95, 0.89 and 0.91 of those with the fewest replicas, in simulation.
_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Starts:
    """Chooses first sizes for those that queue now."""

    queued: int
    settings: Settings

    def first(self, job: Job, fits: int) -> int | None:
        """The first size of ``job``, of which ``fits`` replicas have room; None: the fewest.

        Only where Brain may change it again, for others and by itself.
        """
        if not shares(job) or not may_act(job, self.settings):
            return None
        share = int(fits * _SHARE / self.queued)
        return max((size for size in job.document.replicas.sizes() if size <= share), default=None)
