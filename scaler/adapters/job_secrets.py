"""Brain's Secret beside each job of another project: the job's token, and the backend's record."""

import base64
from collections.abc import Collection, Mapping
from typing import Any

from brain.errors import NotFound
from brain.types.job import JobId
from scaler.adapters.training import Training
from scaler.kubernetes.kinds.fields import GROUP
from scaler.kubernetes.pods.identity import MANAGED_BY, MANAGER
from scaler.kubernetes.runtime.cluster import SECRET, Cluster

_UID = f"{GROUP}/job-uid"


class JobSecrets:
    """The content of the Secrets, each read once; only this class writes them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[JobId, dict[str, str]] = {}

    def read(self, job: Training) -> dict[str, str]:
        """Return the values in a job's Secret; none if there is no Secret."""
        if job.job not in self._known:
            self._known[job.job] = self._ask(job)
        return self._known[job.job]

    def write(self, job: Training, values: Mapping[str, str | None]) -> None:
        """Write values into the Secret beside the job; a None value removes its key."""
        kept = {k: v for k, v in (self.read(job) | dict(values)).items() if v is not None}
        self._cluster.apply(SECRET, _secret(job, kept))
        self._known[job.job] = kept

    def forget_others(self, jobs: Collection[JobId]) -> None:
        """Forget the Secrets of all other jobs; Kubernetes deletes them with the jobs."""
        for job in self._known.keys() - set(jobs):
            self._known.pop(job, None)

    def _ask(self, job: Training) -> dict[str, str]:
        try:
            found = self._cluster.get(SECRET, job.namespace, secret_name(job.name))
        except NotFound:
            return {}
        if (found["metadata"].get("labels") or {}).get(_UID) != job.job:
            # An earlier job of this name left the Secret, until it is garbage-collected.
            return {}
        return {
            # A value that somebody else wrote may be no text; its reader refuses it.
            key: base64.b64decode(value).decode(errors="replace")
            for key, value in (found.get("data") or {}).items()
        }


def secret_name(job: str) -> str:
    """Return the name of Brain's Secret for a job."""
    return f"{job}-brain"


def _secret(job: Training, values: Mapping[str, str]) -> dict[str, Any]:
    """Build the Secret in the form in which it is applied. The job owns it, so it is deleted with
    the job.
    """
    return {
        "metadata": {
            "name": secret_name(job.name),
            "namespace": job.namespace,
            "labels": {MANAGED_BY: MANAGER, _UID: job.job},
            "ownerReferences": [
                {
                    "apiVersion": job.kind.api_version,
                    "kind": job.kind.kind,
                    "name": job.name,
                    "uid": job.job,
                    "controller": False,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "type": "Opaque",
        "data": {k: base64.b64encode(v.encode()).decode() for k, v in values.items()},
    }
