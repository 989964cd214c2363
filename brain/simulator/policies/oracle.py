"""Brain's own division of a pool with perfect knowledge, which shows how much Brain could still
gain from better models.

The policy knows the time left of each job at every size and on every kind of node, if the job runs
on the fewest nodes. It measures nothing, and no guard or approval delays a change. It is not the
best possible policy, because it considers only the present moment.
"""

from collections.abc import Mapping, Sequence

from brain.pool.allocator import ClusterView, Curve, PoolJob, PoolNode, Prices, allocate
from brain.pool.allocator import JobPlacement as Granted
from brain.simulator.placing import Placement, UsableNode
from brain.simulator.policies.rounds import Contender

#: Most sizes of one job that are compared; of more, only every n-th is.
_SIZES = 40


class Oracle:
    """Runs ``allocate`` on the jobs' true remaining times; each round begins with the prices of the
    previous round.
    """

    def __init__(self) -> None:
        self._prices: Prices | None = None

    def allot(
        self, jobs: Sequence[Contender], machines: Sequence[UsableNode]
    ) -> Mapping[str, Placement]:
        """Return the placement of each job that should run."""
        nodes = [
            PoolNode(name=str(each.index), accelerator=each.kind, capacity=each.capacity)
            for each in machines
        ]
        kinds = {str(each.index): each.kind for each in machines}
        views = [_view(job, kinds) for job in jobs]
        made = allocate(views, ClusterView(nodes=nodes), prices=self._prices)
        self._prices = made.prices
        return {
            key: tuple(sorted(map(int, grant.placement.nodes)))
            for key, grant in made.grants.items()
            if grant.placement is not None
        }


def _view(job: Contender, kinds: Mapping[str, str]) -> PoolJob:
    few = job.sizes[:: max(1, -(-len(job.sizes) // _SIZES))]
    sizes = sorted({*few, len(job.placement)} & {*job.sizes})
    left = {
        kind: [job.seconds_left(size, kind) for size in sizes] for kind in sorted({*kinds.values()})
    }
    here = [str(node) for node in job.placement]
    current = Granted(kinds[here[0]], tuple(here)) if here and kinds.keys() >= {*here} else None
    return PoolJob(
        key=job.key,
        curves={
            kind: Curve.of(sizes, [1 / max(each, 1e-9) for each in seconds])
            for kind, seconds in left.items()
        },
        priority=job.priority,
        remaining_seconds=max((seconds[0] for seconds in left.values()), default=None),
        restart_seconds=job.restart_seconds,
        current=current,
    )
