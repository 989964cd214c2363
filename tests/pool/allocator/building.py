"""Clusters and jobs for tests of the policy for many jobs."""

from collections import Counter
from typing import Any

from hypothesis import strategies as st

from brain.pool.allocator import (
    ClusterView,
    Curve,
    JobPlacement,
    PoolJob,
    PoolNode,
    Quota,
    Round,
    Weights,
    allocate,
)

TYPES = ("v100", "a100", "t4")


def nodes(kind: str, how_many: int, capacity: int = 8, rack: int = 4) -> list[PoolNode]:
    """Machines of one type in racks."""
    return [
        PoolNode(
            name=f"{kind}-{index}",
            accelerator=kind,
            capacity=capacity,
            path=("zone", f"rack-{index // rack}"),
        )
        for index in range(how_many)
    ]


def cluster(*parts: list[PoolNode], **quotas: Quota) -> ClusterView:
    """The nodes of ``parts``."""
    return ClusterView(nodes=[node for part in parts for node in part], quotas=quotas)


def scaling(sizes: list[int], exponent: float = 0.8, rate: float = 100.0) -> Curve:
    """Goodput that grows as a power of the size."""
    return Curve.of(sizes, [rate * size**exponent for size in sizes])


def job(key: str, sizes: list[int] | None = None, kind: str = "v100", **fields: Any) -> PoolJob:
    """A job that may have ``sizes`` on one type."""
    exponent = fields.pop("exponent", 0.8)
    made = {"curves": {kind: scaling(sizes or [1, 2, 4, 8], exponent)}, "remaining_seconds": 7200.0}
    return PoolJob(key=key, **(made | fields))


def used(round_: Round, jobs: list[PoolJob]) -> Counter[str]:
    """Accelerators in use by node."""
    each = {one.key: one.gpus_per_replica for one in jobs}
    found: Counter[str] = Counter()
    for grant in round_.grants.values():
        for name in grant.placement.nodes if grant.placement else ():
            found[name] += each[grant.key]
    return found


@st.composite
def clusters(draw: st.DrawFn) -> ClusterView:
    """Up to three types, nodes of mixed sizes, some ill, tenants with and without quotas."""
    found = []
    for kind in TYPES[: draw(st.integers(1, 3))]:
        capacity = draw(st.sampled_from([1, 2, 4, 8]))
        for index in range(draw(st.integers(1, 5))):
            odd = draw(st.booleans()) and draw(st.booleans())
            found.append(
                PoolNode(
                    name=f"{kind}-{index}",
                    accelerator=kind,
                    capacity=draw(st.integers(0, 8)) if odd else capacity,
                    path=("zone", f"rack-{index // 2}"),
                    healthy=draw(st.integers(0, 9)) > 0,
                )
            )
    quotas = {}
    if draw(st.booleans()):
        quotas["red"] = Quota(limit=draw(st.integers(0, 12)))
    if draw(st.booleans()):
        quotas["blue"] = Quota(guaranteed=draw(st.integers(0, 8)))
    return ClusterView(nodes=found, quotas=quotas)


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    """Sizes in a unit, each perhaps in several shapes; not always concave, not always rising."""
    unit = draw(st.integers(1, 3))
    sizes = sorted(draw(st.sets(st.integers(1, 8), min_size=1, max_size=5)))
    exponent, wobble = draw(st.floats(-0.2, 1.0)), draw(st.floats(0, 0.3))
    rows = []
    for place, size in enumerate(sizes):
        rate = (size * unit) ** exponent * (1 + wobble * (place % 2))
        rows.append((size * unit, rate, 0))
        if size > 1 and draw(st.integers(0, 3)) == 0:
            rows.append((size * unit, 1.1 * rate, draw(st.integers(1, size * unit))))
    replicas, rates, spread = zip(*rows, strict=True)
    return Curve.of(replicas, rates, draw(st.floats(0, 0.5)), spread)


@st.composite
def views(draw: st.DrawFn, key: str) -> PoolJob:
    """One job that has nothing yet."""
    kinds = draw(st.sets(st.sampled_from(TYPES), min_size=1))
    return PoolJob(
        key=key,
        curves={kind: draw(curves()) for kind in sorted(kinds)},
        tenant=draw(st.sampled_from(["", "red", "blue"])),
        priority=draw(st.integers(0, 2)),
        attained_seconds=draw(st.floats(0, 1e6)),
        remaining_seconds=draw(st.none() | st.floats(0, 1e6)),
        waited_seconds=draw(st.floats(0, 1e5)),
        age_seconds=draw(st.floats(0, 1e6)),
        restart_seconds=draw(st.floats(0, 500)),
        pinned=draw(st.integers(0, 9)) == 0,
        gpus_per_replica=draw(st.sampled_from([1, 1, 1, 2, 4])),
    )


@st.composite
def scenes(draw: st.DrawFn) -> tuple[list[PoolJob], ClusterView]:
    """Jobs on a cluster, some of them running where an earlier round brought them."""
    found = draw(clusters())
    jobs = [draw(views(f"job-{index}")) for index in range(draw(st.integers(0, 9)))]
    if draw(st.booleans()) and jobs:
        jobs = running(jobs, found, draw(st.integers(0, len(jobs))))
    return jobs, found


def running(jobs: list[PoolJob], where: ClusterView, how_many: int) -> list[PoolJob]:
    """The jobs with the first ``how_many`` of them in the places that a round gives them."""
    from dataclasses import replace

    free = [replace(one, pinned=False) for one in jobs[:how_many]]
    healthy = replace(where, nodes=[replace(node, healthy=True) for node in where.nodes])
    grants = allocate(free, healthy, settings=Weights(exact_jobs=0)).grants
    return [
        replace(one, current=grants[one.key].placement) if one.key in grants else one
        for one in jobs
    ]


def placement(kind: str, *names: str) -> JobPlacement:
    """Replicas on nodes of a type, by number."""
    return JobPlacement(kind, tuple(f"{kind}-{name}" for name in names))
