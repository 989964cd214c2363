"""Pods that leave their nodes while the job runs, and the PodDisruptionBudget for the others.

A pod must leave if a ScalePlan names the pod, if a plan of Brain moves the replica to another node,
or if the pod's node is cordoned. The pod leaves once its replacement runs; until then a disruption
budget makes ``kubectl drain`` wait. The budget does not cover pods on a node whose end is
announced, so that these pods can hand over before the node is gone.
"""

from collections.abc import Sequence, Set
from datetime import datetime

from brain.types.job import JobId, JobState
from brain.views import JobView
from scaler.kubernetes.dependents.gangs import patience_of
from scaler.kubernetes.dependents.upkeep import Upkeep
from scaler.kubernetes.kinds import ElasticJob
from scaler.kubernetes.plans.migration import Migrations, lacking, marked, stranded, under_way
from scaler.kubernetes.pods import gang, identity
from scaler.kubernetes.pods.fitting import NodeCapacity
from scaler.kubernetes.pods.orders import specimen
from scaler.kubernetes.replicas.observed import Replicas
from scaler.kubernetes.runtime.cluster import Object
from scaler.kubernetes.status.roles import is_ready

_TRAINS = frozenset({JobState.RUNNING, JobState.CHANGING, JobState.DEGRADED})


class Departures:
    """Lets pods leave once their replacements run, or the time limit has passed."""

    def __init__(
        self, upkeep: Upkeep, moves: Migrations, replicas: Replicas, room: NodeCapacity
    ) -> None:
        self._upkeep, self._moves, self._replicas, self._room = upkeep, moves, replicas, room

    def tend(
        self, job: ElasticJob, view: JobView, mine: Sequence[Object], *, fixed: bool, now: datetime
    ) -> str:
        """Check the job once; return why some pods do not leave yet, or an empty text.

        ``fixed`` is True if the job's pods know each other's addresses; then the old pod of a rank
        leaves before its replacement starts.
        """
        id, wished = JobId(job.metadata.uid), view.replicas_wished
        shut = self.shut(job, view, mine) if fixed else ""
        plan = None if shut else view.plan
        if plan is not None and under_way(plan):
            self._replicas.moving[id] = plan.target.nodes
        else:
            self._replicas.moving.pop(id, None)
        self._moves.follow(plan, mine)
        for pod in stranded(mine, dict(self._replicas.moving.get(id, ()))):
            self._upkeep.replace(pod)
        until = self._replicas.leaving(id, patience_of(job), now)
        free = {replica for replica, at in until.items() if at is None or at <= now}
        if not fixed and view.state in _TRAINS:
            ready = {_id(pod) for pod in mine if is_ready(pod)}
            self._upkeep.keep_budget(job, kept(job, wished, free, ready), now)
        going = () if fixed else until
        moving = [pod for pod in mine if gang.stays(pod) and (marked(pod) or _id(pod) in going)]
        if not moving:
            return shut
        waited = {replica for replica in free if until[replica] is not None}
        return self._moves.carry_out(
            moving,
            self._replicas.seen(id, now),
            wished,
            at_once=lambda pod: fixed or _id(pod) in waited,
        )

    def shut(self, job: ElasticJob, view: JobView, mine: Sequence[Object]) -> str:
        """Return why a job whose pods have fixed addresses moves no pod yet, or an empty text.

        In such a job the old pods leave before the new pods start. If the new pods found no free
        node, the job would stop.
        """
        if view.plan is None or not under_way(view.plan):
            return ""
        like = specimen(job)
        newest = max(filter(gang.stays, mine), key=_id, default=like)
        # The amounts may be a plan's.
        like = {
            **like,
            "spec": {**like["spec"], "containers": newest["spec"].get("containers", [])},
        }
        return lacking(view.plan, like, mine, self._room.capacity([like]))

    def leaving(self, job: ElasticJob, mine: Sequence[Object], now: datetime) -> set[str]:
        """Return the names of pods that are being replaced."""
        until = self._replicas.leaving(JobId(job.metadata.uid), patience_of(job), now)
        return {str(p["metadata"]["name"]) for p in mine if marked(p) or _id(p) in until}

    def soon(self, job: ElasticJob, now: datetime) -> float | None:
        """Return the seconds until the next pod's time limit; None if no pod waits."""
        until = self._replicas.leaving(JobId(job.metadata.uid), patience_of(job), now).values()
        left = ((at - now).total_seconds() for at in until if at is not None)
        return min((each for each in left if each > 0), default=None)


def kept(job: ElasticJob, wished: int, free: Set[int], ready: Set[int]) -> int:
    """Return the number of pods that the job's disruption budget protects from eviction.

    The budget does not protect the replicas in ``free``, even if other replicas are missing.
    """
    if not job.spec.drain_on_cordon:
        return 0
    return max(0, min(wished - len(free), len(ready - free))) if free else wished


def _id(pod: Object) -> int:
    found = identity.scaled_of(pod)
    return found[1] if found is not None else -1
