"""Writes the status and the Events of ElasticJobs."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from brain.types.job import JobId
from scaler.kubernetes.brain import OperatorsBrain
from scaler.kubernetes.plans.requests import JOB
from scaler.kubernetes.runtime import Cluster, Recorder, StatusCondition, write_status
from scaler.kubernetes.runtime.cluster import Object
from scaler.kubernetes.runtime.store import Store
from scaler.kubernetes.status.happenings import happenings
from scaler.kubernetes.status.job_status import beside_state
from scaler.kubernetes.status.pacing import StatusPace


class JobStatuses:
    """Writes each status with the Events that follow from it, and reports its conditions to
    Brain.
    """

    def __init__(
        self, cluster: Cluster, jobs: Store, brain: OperatorsBrain, events: Recorder
    ) -> None:
        self._cluster, self._jobs, self._brain, self._events = cluster, jobs, brain, events
        self._pace = StatusPace()

    def show(
        self, obj: Object, wanted: Mapping[str, Any], now: datetime, *, at_once: bool = False
    ) -> float | None:
        """Write a status, or return the seconds to wait, so that one write covers later changes,
        too.
        """
        pause = None if at_once else self._pace.pause(obj, wanted, now)
        if pause is None:
            self.write(obj, wanted)
        return pause

    def write(self, obj: Object, wanted: Mapping[str, Any]) -> None:
        """Write a status if it changed.

        Raises:
            Conflict: ``obj`` is not the newest version; read the object again.
        """
        answer = write_status(self._cluster, JOB, obj, wanted)
        if answer is not None:
            self._jobs.learn(answer)
            for each in happenings(obj.get("status") or {}, wanted):
                self._events.record(obj, **asdict(each))
        self._pace.written(obj["metadata"]["uid"])
        said = beside_state(wanted.get("conditions") or ())
        self._brain.object_says(JobId(obj["metadata"]["uid"]), said)

    def forget(self, job: str) -> None:
        """Forget a job whose object is gone."""
        self._pace.written(job)

    def warn_once(self, obj: Object, said: StatusCondition) -> None:
        """Write an Event for a condition, unless the object has this condition and message."""
        known = (obj.get("status") or {}).get("conditions") or ()
        if not any((c.get("type"), c.get("message")) == (said.type, said.message) for c in known):
            self._events.record(obj, "Warning", said.reason, said.message)

    def say(self, obj: Object, type: Any, reason: str, message: str) -> None:
        """Write an Event, unless the object's status has the same message."""
        known = (obj.get("status") or {}).get("message")
        if known != message:
            self._events.record(obj, type, str(reason), message)
