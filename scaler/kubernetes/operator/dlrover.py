"""Detects DLRover's own controller, beside which this operator refuses to serve ElasticJobs."""

from collections.abc import Sequence
from datetime import datetime

from brain.errors import BadInput, NotAllowed, NotFound
from scaler.kubernetes.runtime import Cluster, Object
from scaler.kubernetes.runtime.cluster import LEASE
from scaler.kubernetes.runtime.status import read_instant

#: The lease of DLRover's own controller (``LeaderElectionID`` of go/elasticjob/main.go).
DLROVER_LEASE = "dlrover-elasticjob"
#: A lease counts as expired if it was not renewed for this multiple of its duration.
_STALE = 3.0


def refuse_beside(cluster: Cluster, own_namespace: str) -> None:
    """Raise if DLRover's controller serves this cluster.

    Raises:
        BadInput: DLRover's controller holds its lease.
    """
    leases = _leases(cluster, own_namespace)
    holder = dlrover_leads(leases, cluster.clock.now())
    if holder is not None:
        raise BadInput(
            f"lease {DLROVER_LEASE} is held by {holder}: DLRover's controller serves "
            "ElasticJobs in this cluster; stop it, or give Brain other namespaces with "
            "--namespace",
            field="namespace",
        )


def _leases(cluster: Cluster, own_namespace: str) -> list[Object]:
    try:
        chosen = f"metadata.name={DLROVER_LEASE}"
        return list(cluster.list(LEASE, field_selector=chosen).items)
    except NotAllowed:
        found: list[Object] = []
        for namespace in dict.fromkeys(("dlrover", own_namespace)):
            try:
                found.append(cluster.get(LEASE, namespace, DLROVER_LEASE))
            except (NotFound, NotAllowed):
                continue
        return found


def dlrover_leads(leases: Sequence[Object], now: datetime) -> str | None:
    """Return the holder of DLRover's lease; None if there is no lease, or it has expired.

    ``now`` is the API server's time.
    """
    for lease in leases:
        spec = lease.get("spec") or {}
        holder, renewed = spec.get("holderIdentity"), _renewed_at(lease)
        if lease["metadata"]["name"] != DLROVER_LEASE or not holder or renewed is None:
            continue
        age = (now - renewed).total_seconds()
        if age < _STALE * float(spec.get("leaseDurationSeconds") or 15):
            return f"{holder} in namespace {lease['metadata'].get('namespace', '')}"
    return None


def _renewed_at(lease: Object) -> datetime | None:
    """Return when the API server last wrote a lease; if it does not say, when its holder did.

    The clock of the holder may differ from the API server's.
    """
    writes = (
        read_instant(each.get("time")) for each in lease["metadata"].get("managedFields") or ()
    )
    written = max((at for at in writes if at is not None), default=None)
    return written or read_instant((lease.get("spec") or {}).get("renewTime"))
