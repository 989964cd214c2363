"""Writes a ScalePlan's status, and deletes the ScalePlan once it need not be kept."""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from brain.errors import NotFound
from brain.types.plan import ScalePlan as Standing
from scaler.kubernetes.kinds import API_VERSION, GROUP, PlanCondition, Reason
from scaler.kubernetes.pods import identity
from scaler.kubernetes.runtime import Cluster, Kind, Recorder, Result, StatusCondition, write_status
from scaler.kubernetes.runtime.cluster import Object
from scaler.kubernetes.runtime.status import conditions, instant
from scaler.kubernetes.runtime.store import Store
from scaler.kubernetes.status.progress import CLOSED, PlanRetention, progress

log = logging.getLogger(__name__)

PLAN = Kind(GROUP, API_VERSION.partition("/")[2], "scaleplans", "ScalePlan")
SOON_SECONDS = 5.0


class PlanStatus:
    """Writes a plan's status, and an Event for each new message of the status."""

    def __init__(
        self, cluster: Cluster, plans: Store, events: Recorder, keeping: PlanRetention
    ) -> None:
        self._cluster, self._plans, self._events = cluster, plans, events
        self._keeping = keeping

    def wait(self, obj: Object, reason: Reason, message: str, now: datetime) -> Result:
        """Write why a plan waits; the plan is checked again soon."""
        waits = StatusCondition(
            type=PlanCondition.ACCEPTED, status=None, reason=reason, message=message
        )
        self._say(obj, "Normal", reason, message)
        self.state(obj, [waits], "Pending", now)
        return Result(requeue_after_seconds=SOON_SECONDS)

    def refuse(
        self,
        obj: Object,
        reason: Reason,
        message: str,
        now: datetime,
        *,
        job: Object | None = None,
        final: bool = True,
        phase: str = "Rejected",
    ) -> Result:
        """Refuse a plan; if ``final`` is False, the plan may be accepted later.

        ``job`` is the plan's job; Kubernetes deletes the plan's object together with the job.
        """
        no = StatusCondition(
            type=PlanCondition.ACCEPTED, status=False, reason=reason, message=message
        )
        self._say(obj, "Warning", reason, message)
        if job is not None:
            # First: whoever reads the refusal may delete the job at once.
            self.belong(obj, job)
        self.state(obj, [no], phase if final else "Pending", now)
        return Result(requeue_after_seconds=self._keeping.seconds if final else None)

    def state(
        self,
        obj: Object,
        said: Sequence[StatusCondition],
        phase: str,
        now: datetime,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a phase, other fields and conditions into a plan's status.

        The message of the first condition becomes the message of the status.
        """
        known: Mapping[str, Any] = obj.get("status") or {}
        listed = conditions(known.get("conditions"), said, generation=1, now=now)
        told = {"phase": phase, "message": said[0].message, "conditions": listed}
        wanted = {**known, **told, **(extra or {})}
        if phase in CLOSED:
            wanted.setdefault("finishTime", instant(now))
        self._write(obj, wanted | {"observedGeneration": 1})

    def _write(self, obj: Object, wanted: Mapping[str, Any]) -> None:
        filled = {name: value for name, value in wanted.items() if value not in (None, "")}
        answer = write_status(self._cluster, PLAN, obj, filled)
        if answer is not None:
            self._plans.learn(answer)

    def _say(self, obj: Object, type: Any, reason: str, message: str) -> None:
        if (obj.get("status") or {}).get("message") != message:
            self._events.record(obj, type, str(reason), message)

    def show(
        self,
        obj: Object,
        plan: Standing,
        now: datetime,
        *,
        said: Sequence[StatusCondition] = (),
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the state of one of Brain's plans."""
        known: Mapping[str, Any] = obj.get("status") or {}
        found, fields = progress(plan)
        listed = conditions(known.get("conditions"), [*said, *found], generation=1, now=now)
        wanted = {**known, **fields, **(extra or {}), "conditions": listed}
        self._write(obj, wanted | {"observedGeneration": 1})

    def belong(self, obj: Object, job: Object) -> None:
        """Make the plan's object belong to its job, so that it does not apply to a later job of the
        same name.
        """
        metadata = obj["metadata"]
        owners = [*(metadata.get("ownerReferences") or ())]
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        if any(each.get("uid") == uid for each in owners):
            return
        own = identity.owner(name, uid) | {"controller": False}
        patch = {"metadata": {"ownerReferences": [*owners, own]}}
        self._plans.learn(self._cluster.merge(PLAN, metadata["namespace"], metadata["name"], patch))

    def delete(self, obj: Object) -> Result:
        """Delete the object of a plan that need not be kept any longer."""
        metadata = obj["metadata"]
        try:
            self._cluster.delete(
                PLAN, metadata["namespace"], metadata["name"], uid=metadata.get("uid")
            )
        except NotFound:
            log.debug("%s is gone already", metadata["name"])
        return Result()
