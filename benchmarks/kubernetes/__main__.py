"""What do operator and Brain cost a cluster, and what do they survive?

    make bench-kubernetes
    BRAIN_BENCH_KUBECONFIG=~/.kube/config make bench-kubernetes   # rows of that cluster, too

The programs are those that the chart starts (``python -m brain.service``, on SQLite, and
``brain-scale --kubernetes``), with its defaults. Jobs and plans are applied as users apply them;
images have no agent, so the operator itself finds out that a job runs. The first rows are of the
emulated API server (behind TLS, in a process of its own, its nodes and kubelets played); 65270bc's
programs run in the same way, with kinds of their own. CPU seconds are user and system of Brain and
operator together, from the first job's birth until the last one's status says Running, and
memory is the most that was ever resident. Failures are real: SIGKILL, a server that listens no
more, watches that are answered 410. On another cluster only nodes and kubelets are played.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.base import BASE, checkout
from benchmarks.kubernetes import faults
from benchmarks.kubernetes.births import Life, live, placed
from benchmarks.kubernetes.plans import beside_kopf
from benchmarks.kubernetes.programs import server
from benchmarks.report import Row, markdown, publish

#: Kubeconfig of the cluster of the second part.
VARIABLE = "BRAIN_BENCH_KUBECONFIG"
_PODS_PER_JOB = 16
#: What repeated runs differ by.
_NOISE = 0.9


def beside_base(jobs: int, idle_seconds: float) -> Iterator[Row]:
    """The same jobs under an older commit, and more than three times as many under this one."""
    with tempfile.TemporaryDirectory(prefix="brain-bench-base-") as place:
        folders = ("brain", "scaler", "launcher", "collectors", "migrations", "deploy")
        before = live(jobs, idle_seconds, older=checkout(Path(place), *folders))
    few, many = live(jobs, idle_seconds), live(jobs * 10 // 3, idle_seconds)
    of = f"emulator: {jobs} jobs × 1 pod"
    yield Row(
        metric=f"{of}: CPU from birth to Running",
        value=few.cpu_seconds,
        unit="s",
        peer=BASE,
        peer_value=before.cpu_seconds,
        ratio_bar=5.0,
        note=f"the last runs after {few.seconds:.0f} s, the peer's after {before.told}",
    )
    yield Row(
        metric=f"{of}: CPU while idle",
        value=few.idle_percent,
        unit="% of a core",
        peer=BASE,
        peer_value=before.idle_percent,
        ratio_bar=20.0,
        note=f"over {idle_seconds:.0f} s",
    )
    yield from _writes(of, few, jobs)
    yield from _growth(few, many, jobs)


def _writes(of: str, life: Life, jobs: int) -> Iterator[Row]:
    told = ", ".join(f"{what} {count / jobs:.2g}" for what, count in life.writes.most_common())
    yield Row(
        metric=f"{of}: writes per job, birth to Running",
        value=life.writes.total() / jobs,
        unit="",
        bar=5.0,
        note=told,
    )
    yield Row(metric=f"{of}: the operator's memory", value=life.memory_mib, unit="MiB", bar=150.0)


def _growth(few: Life, many: Life, jobs: int) -> Iterator[Row]:
    """Cost per job beside that of fewer jobs: at most linear where the ratio is 1."""
    for what, unit, one, other in (
        ("CPU from birth to Running", "ms", 1000 * many.cpu_seconds, 1000 * few.cpu_seconds),
        ("CPU while idle", "‰ of a core", 10 * many.idle_percent, 10 * few.idle_percent),
    ):
        yield Row(
            metric=f"emulator: {many.jobs} jobs × 1 pod: {what}, per job",
            value=one / many.jobs,
            unit=unit,
            peer=f"{jobs} jobs",
            peer_value=other / few.jobs,
            ratio_bar=_NOISE,
        )


def crowd(foreign: int) -> Row:
    """Memory beside so many pods that are none of ours."""
    found = live(10, 1.0, others=foreign)
    return Row(
        metric=f"emulator: the operator's memory beside {foreign:,} foreign pods",
        value=found.memory_mib,
        unit="MiB",
        bar=150.0,
    )


def gangs(jobs: int) -> Iterator[Row]:
    """Jobs of many pods."""
    life = live(jobs, 0.0, pods=_PODS_PER_JOB)
    of = f"emulator: {jobs} jobs × {_PODS_PER_JOB} pods"
    yield Row(metric=f"{of}: until the last runs", value=life.seconds, unit="s")
    yield Row(
        metric=f"{of}: writes per pod",
        value=life.writes["pods"] / (jobs * _PODS_PER_JOB),
        unit="",
        bar=2.0,
        note=f"all writes {life.writes.total() / (jobs * _PODS_PER_JOB):.3g}",
    )


def elsewhere(kubeconfig: str, jobs: int, many: int, idle_seconds: float) -> Iterator[Row]:
    """What another cluster shows: no older commit, and no faults."""
    with server(kubeconfig) as api:
        name = api.name
    life = live(jobs, idle_seconds, kubeconfig=kubeconfig)
    of = f"{name}: {jobs} jobs × 1 pod"
    batch = placed(kubeconfig, "batch_jobs", jobs)
    yield Row(metric=f"{of}: CPU from birth to Running", value=life.cpu_seconds, unit="s")
    yield Row(metric=f"{of}: CPU while idle", value=life.idle_percent, unit="% of a core")
    yield Row(
        metric=f"{of}: until the last pod has a node",
        value=life.bound_seconds,
        unit="s",
        peer="batch/Job",
        peer_value=batch,
    )
    yield from _writes(of, life, jobs)
    pods = many * _PODS_PER_JOB
    life = live(many, 0.0, pods=_PODS_PER_JOB, kubeconfig=kubeconfig)
    yield Row(
        metric=f"{name}: {many} jobs × {_PODS_PER_JOB} pods: until the last has a node",
        value=life.bound_seconds,
        unit="s",
        peer="the scheduler alone",
        peer_value=placed(kubeconfig, "pods", pods),
        ratio_bar=1.0,
        note=f"writes per pod {life.writes.total() / pods:.3g}",
    )


def main() -> None:
    """Measure, print, and fail where a bar is not met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--scale", type=float, default=1.0, help="so many of everything, for tries")
    parser.add_argument("--idle-seconds", type=float, default=45.0)
    named = os.environ.get(VARIABLE, "")
    parser.add_argument("--kubeconfig", default=named, help=f"another cluster; else {VARIABLE}")
    parts = ("jobs", "gangs", "crowd", "plans", "slow", "failover", "faults", "elsewhere")
    parser.add_argument("--only", choices=parts, action="append")
    options = parser.parse_args()

    def some(count: int) -> int:
        return max(1, round(count * options.scale))

    of: dict[str, Callable[[], Iterator[Row]]] = {
        "jobs": lambda: beside_base(some(300), options.idle_seconds),
        "gangs": lambda: gangs(some(200)),
        "crowd": lambda: iter([crowd(some(50_000))]),
        "plans": lambda: beside_kopf(some(1000), some(200)),
        "slow": lambda: iter([faults.slow_server(some(100))]),
        "failover": lambda: faults.failover(some(150)),
        "faults": lambda: faults.survived(some(50), 60.0 * min(1.0, options.scale)),
        "elsewhere": lambda: (
            elsewhere(options.kubeconfig, some(300), some(200), options.idle_seconds)
            if options.kubeconfig
            else iter(())
        ),
    }
    table, began = [], time.monotonic()
    for name in options.only or parts:
        for row in of[name]():
            print(f"{time.monotonic() - began:5.0f} s  {row.metric}: {row.value}", flush=True)
            table.append(row)
    if options.only or options.scale != 1.0:
        print(markdown(table))
        return
    publish("kubernetes", "Operator and Brain on Kubernetes", table)


if __name__ == "__main__":
    main()
