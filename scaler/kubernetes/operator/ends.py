"""Finishes ElasticJobs whose jobs have ended."""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from brain.errors import NotFound
from brain.types.job import JobId
from brain.views import JobView
from scaler.kubernetes.dependents.gangs import Gangs
from scaler.kubernetes.dependents.new_nodes import NewNodes
from scaler.kubernetes.dependents.queues import Queues
from scaler.kubernetes.dependents.roles import Roles
from scaler.kubernetes.dependents.upkeep import Upkeep
from scaler.kubernetes.kinds import ElasticJob
from scaler.kubernetes.operator.statuses import JobStatuses
from scaler.kubernetes.plans.requests import JOB, Requests
from scaler.kubernetes.runtime import Cluster, Result
from scaler.kubernetes.runtime.cluster import Object
from scaler.kubernetes.status.ends import noted_at
from scaler.kubernetes.status.job_status import Findings, status

log = logging.getLogger(__name__)


class JobEnds:
    """Ends the dependents of finished jobs, and drops what is known about these jobs."""

    def __init__(
        self,
        cluster: Cluster,
        statuses: JobStatuses,
        *,
        roles: Roles,
        queues: Queues,
        new_nodes: NewNodes,
        gangs: Gangs,
        upkeep: Upkeep,
        requests: Requests,
        forget: Callable[[JobId], object],
    ) -> None:
        self._cluster, self._status, self._roles, self._queues = cluster, statuses, roles, queues
        self._new_nodes, self._gangs = new_nodes, gangs
        self._upkeep, self._requests, self._forget = upkeep, requests, forget

    def finish(
        self, obj: Object, job: ElasticJob, view: JobView, pods: Sequence[Object], now: datetime
    ) -> Result:
        """Finish a job without running pods: write its end into its status, and delete its object
        once its ``ttlSecondsAfterFinished`` is over.
        """
        self._roles.end(job)
        self._queues.end(obj, view.state, now)
        self._new_nodes.end(job)
        self._gangs.forget(job.metadata.uid)
        self._upkeep.forget(job.metadata.uid)
        self._requests.forget(JobId(job.metadata.uid))
        self._forget(JobId(job.metadata.uid))
        self._status.write(obj, status(obj, job, view, pods, Findings(), now))
        metadata, ttl = obj["metadata"], job.spec.ttl_seconds_after_finished
        if ttl is None or metadata.get("deletionTimestamp"):
            return Result()
        left = (noted_at(job, now) + timedelta(seconds=ttl) - now).total_seconds()
        if left > 0:
            return Result(requeue_after_seconds=left)
        try:
            self._cluster.delete(JOB, metadata["namespace"], metadata["name"], uid=metadata["uid"])
        except NotFound:
            log.debug("%s is gone already", metadata["name"])
        return Result()
