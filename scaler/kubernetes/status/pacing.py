"""Decides how long a job's status waits before it is written, so that one write covers several
changes.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from scaler.kubernetes.runtime.cluster import Object
from scaler.kubernetes.runtime.status import read_instant
from scaler.kubernetes.status.ends import seconds_until
from scaler.kubernetes.status.job_status import passing

#: Time for which counts wait for further changes: pods that begin change several times a second.
_TOGETHER = timedelta(seconds=2)
#: Time in which a new job gets its first pods, so that one status tells of both.
_BIRTH = timedelta(seconds=5)


class StatusPace:
    """Records how long each job's changed counts have waited to be written.

    Changes of lasting conditions do not wait.
    """

    def __init__(self) -> None:
        self._unwritten: dict[str, datetime] = {}

    def pause(self, obj: Object, told: Mapping[str, Any], now: datetime) -> float | None:
        """Return the seconds that a status may wait for later changes; None to write it now."""
        known = obj.get("status") or {}
        if not known:
            request = told.get("request") or {"generation": 0}
            if told["replicas"] or request.get("generation") != 0:
                return None
            born = read_instant(obj["metadata"].get("creationTimestamp")) or now
            # The API server's clock may be ahead of this one.
            since = min(born, self._unwritten.setdefault(_uid(obj), now))
            return seconds_until(since + _BIRTH, now)
        if told == known or not passing(known, told):
            return None
        return seconds_until(self._unwritten.setdefault(_uid(obj), now) + _TOGETHER, now)

    def written(self, job: str) -> None:
        """Record that the status of a job was written, or that the job is gone."""
        self._unwritten.pop(job, None)


def _uid(obj: Object) -> str:
    return str(obj["metadata"]["uid"])
