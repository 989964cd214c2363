"""Asks the cluster's autoscaler for nodes, if the present nodes could never hold a job.

The request consists of placeholder pods, which no present node can hold. The operator cannot know
which nodes an autoscaler can create, so the placeholder pods exist for as long as the job waits.
The job's condition ``Feasible`` is *Unknown* during ``gangPatience``. It is False with the reason
*NeverFits* if no node was added in this time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from brain.types.job import FINISHED, JobId, JobState
from brain.views import JobView
from scaler.kubernetes.dependents.gangs import patience_of
from scaler.kubernetes.dependents.upkeep import Upkeep
from scaler.kubernetes.kinds import ElasticJob
from scaler.kubernetes.pods import gang
from scaler.kubernetes.pods.asking import asking, asking_index, asking_on_index
from scaler.kubernetes.pods.fitting import infeasible, takers
from scaler.kubernetes.pods.orders import Installation, group_sizes, specimens
from scaler.kubernetes.runtime.cluster import Object
from scaler.kubernetes.runtime.status import read_instant
from scaler.kubernetes.runtime.store import Store

#: Most pods of a job that ask at once; further pods follow as nodes come.
_MOST = 64
#: States of jobs that no longer want the nodes they asked for, or have them.
_HAVE = frozenset({*JobState}) - FINISHED - {JobState.QUEUED, JobState.SUSPENDED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What one check found out about the nodes that a job needs."""

    #: Why the present nodes could not hold the job even if empty; None if they could.
    lacking: str | None = None
    #: True if pods ask for nodes, which may still come.
    yet: bool = False
    #: Latest time to look again; None to look only after a change.
    look_seconds: float | None = None


class NewNodes:
    """Keeps the placeholder pods that request nodes."""

    def __init__(self, upkeep: Upkeep, pods: Store, nodes: Store) -> None:
        self._upkeep, self._pods, self._nodes = upkeep, pods, nodes
        self._pods.index("asking", asking_index)
        self._pods.index("asking on", asking_on_index)
        #: Jobs that released the nodes they got, and the time until which they do not ask again.
        self._shut: dict[str, datetime] = {}

    def tend(
        self, job: ElasticJob, least: int, view: JobView | None, house: Installation, now: datetime
    ) -> Outlook:
        """Check a job's nodes once; create or delete the job's placeholder pods.

        ``least`` of the job's pods must start together. ``house`` has the installation's settings.
        """
        have = view is not None and view.state in _HAVE
        size = max(least, view.replicas_wished) if view is not None and have else least
        mine = [pod for pod in self._pods.by("asking", job.metadata.uid) if gang.stays(pod)]
        nodes, groups = list(self._nodes), group_sizes(job, view)
        never = infeasible(_all(specimens(job, least, groups)), nodes)
        like = specimens(job, size, groups)
        short = never if size == least else infeasible(_all(like), nodes)
        served = not short and nodes and (have or not mine)
        if served or job.spec.suspend:
            self.end(job)
            return Outlook(lacking=never)
        since = max(_times(mine), default=now)
        left = (since + patience_of(job) - now).total_seconds()
        if left <= 0 and gang.holding(mine):
            self._shut[job.metadata.uid] = now + patience_of(job)
            self.end(job)
        elif short or not nodes:
            self._ask(job, like, mine, house, now)
        if never is None or left <= 0:
            return Outlook(lacking=never, look_seconds=left if left > 0 else None)
        asked = (
            f"{never}; the pods stay pending, so that a cluster autoscaler can add the missing "
            "nodes"
        )
        return Outlook(lacking=asked, yet=True, look_seconds=left)

    def jobs_on(self, node: str) -> set[JobId]:
        """Return the jobs whose placeholder pods run on a node."""
        found = self._pods.by("asking on", node)
        return {JobId(uid) for pod in found for uid in asking_index(pod)}

    def forget(self, job: str) -> None:
        """Forget until when a job requests no nodes."""
        self._shut.pop(job, None)

    def end(self, job: ElasticJob) -> None:
        """Stop requesting nodes."""
        for pod in self._pods.by("asking", job.metadata.uid):
            if gang.stays(pod):
                self._upkeep.replace(pod)

    def _ask(
        self,
        job: ElasticJob,
        like: Mapping[str, Sequence[Object]],
        mine: Sequence[Object],
        house: Installation,
        now: datetime,
    ) -> None:
        until = self._shut.get(job.metadata.uid)
        if until is not None and now < until:
            return
        came = {pod["spec"]["nodeName"] for pod in gang.holding(mine)}
        there = [node for node in self._nodes if node["metadata"]["name"] not in came]
        image = house.injection.image if house.injection is not None else None
        names = {pod["metadata"]["name"] for pod in mine}
        pods, before = list[Object](), list[Object]()
        for group, such in like.items():
            holds, off = takers(such[0], len(such), there, before)
            numbers = range(len(pods), len(pods) + len(such) - holds)
            pods += [asking(job, group, number, off, image) for number in numbers]
            before += such
        new = (pod for pod in pods if pod["metadata"]["name"] not in names)
        for pod in islice(new, max(0, _MOST - (len(mine) - len(came)))):
            self._upkeep.create(pod)


def _all(pods: Mapping[str, Sequence[Object]]) -> list[Object]:
    return [each for such in pods.values() for each in such]


def _times(pods: Sequence[Object]) -> Sequence[datetime]:
    """Return when each pod was made, and when it got its node."""
    made = (read_instant(pod["metadata"].get("creationTimestamp")) for pod in pods)
    return [at for at in (*made, *map(gang.bound_at, pods)) if at is not None]
