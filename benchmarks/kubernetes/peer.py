"""An operator on kopf that writes one status for each ScalePlan and does nothing else."""

from typing import Any

import kopf

from benchmarks.kubernetes import workload


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Let the operator write no events."""
    settings.posting.enabled = False


@kopf.on.create(workload.GROUP, workload.VERSION, "scaleplans")
async def reconcile(body: kopf.Body, patch: kopf.Patch, **_: Any) -> None:
    """Write the status of a plan."""
    patch.status.update({"phase": "Applied", "observedGeneration": body["metadata"]["generation"]})


if __name__ == "__main__":
    kopf.run(standalone=True, namespaces=[workload.NAMESPACE])
