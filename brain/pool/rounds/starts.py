"""With how many replicas a job begins that shares its pool."""

from dataclasses import dataclass

from brain.lifecycle import may_act
from brain.lifecycle.sight import same_script
from brain.models.earlier import usual_size
from brain.pool.division import shares
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.job import Job

#: Of what is idle those that begin take so much together where nobody named a size: idle
#: accelerators cost nobody anything, and whoever comes next shall find some. 0.25, 0.5 and 1 (8
#: replicas at most): completion times of 0.95, 0.89 and 0.91 of those with the fewest replicas, in
#: simulation.
_SHARE = 0.5
#: Replicas that suffice to measure the noise of gradients: few pay at the first batch, which is all
#: that a script whose batch Brain chooses is known to bear until then.
_TUNED = 2


@dataclass(frozen=True, slots=True)
class Starts:
    """Chooses first sizes for those that queue now."""

    queued: int
    settings: Settings
    tx: Transaction

    def first(self, job: Job, named: int | None, fits: int) -> int | None:
        """The first size of ``job``, of which ``fits`` replicas have room; None: as its owner says.

        The size that its owner named, where that leaves as much to the others that queue; else a
        share of what is idle, rather than to wait. Where runs of its script are known, the size
        that they usually had takes the owner's place. Only where Brain may change it again, for
        others and by itself.
        """
        if not shares(job) or not may_act(job, self.settings):
            return None
        share = int(fits * _SHARE / self.queued)
        usual = usual_size(same_script(self.tx, job))
        if usual is not None:
            sizes = job.document.replicas.sizes()
            return max((s for s in sizes if s <= min(usual, fits // self.queued)), default=None)
        if named is None and job.document.tunes and job.document.batch.global_max:
            share = min(share, max(_TUNED, job.document.replicas.min))
        if named is not None and named <= fits // self.queued:
            return named
        return max((size for size in job.document.replicas.sizes() if size <= share), default=None)
