"""Measures the load that operator and Brain put on a cluster, and the faults that they survive.

    make bench-kubernetes
    BRAIN_BENCH_KUBECONFIG=~/.kube/config make bench-kubernetes   # then on that cluster, too

The programs are those that the chart starts (``python -m brain.service`` on SQLite, and
``brain-scale --kubernetes``), with the chart's defaults. Jobs and plans are applied as users apply
them. Images contain no agent, so the operator itself finds out that a job runs.

The first rows are measured on the emulated API server, which has TLS and a process of its own; its
nodes and kubelets are simulated. The programs of commit 65270bc run in the same way, with their own
kinds. CPU seconds are user and system time of Brain and operator together, from the creation of the
first job until the status of the last job says Running. Memory is the peak of resident memory. The
failures are real: SIGKILL, a server that stops listening, watches that get 410.

On another cluster only nodes and kubelets are simulated, and a proxy in front of the API server
causes the faults, so the cluster itself is not damaged.
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
from benchmarks.report import Row, markdown, publish

#: Kubeconfig of the cluster of the second part.
VARIABLE = "BRAIN_BENCH_KUBECONFIG"
_PODS_PER_JOB = 16
#: What repeated runs differ by.
_NOISE = 0.9
#: Parts that only the emulator can play.
_EMULATED = frozenset({"crowd", "slow"})


def births(jobs: int, idle_seconds: float, kubeconfig: str) -> Iterator[Row]:
    """Measure jobs of one pod, then more than three times as many.

    On the emulator, an older commit's programs first run the same jobs. On another cluster, whose
    kinds must not change, the same number of batch/Jobs is created for comparison.
    """
    before = None if kubeconfig else _base(jobs, idle_seconds)
    few = live(jobs, idle_seconds, kubeconfig=kubeconfig)
    of = f"{few.name}: {jobs} jobs × 1 pod"
    told = f"the last runs after {few.seconds:.0f} s"
    yield Row(
        metric=f"{of}: CPU from birth to Running",
        value=few.cpu_seconds,
        unit="s",
        peer=BASE if before else "",
        peer_value=before.cpu_seconds if before else None,
        ratio_bar=5.0 if before else None,
        note=f"{told}, the peer's after {before.told}" if before else told,
    )
    yield Row(
        metric=f"{of}: CPU while idle",
        value=few.idle_percent,
        unit="% of a core",
        peer=BASE if before else "",
        peer_value=before.idle_percent if before else None,
        ratio_bar=20.0 if before else None,
        note=f"over {idle_seconds:.0f} s",
    )
    if kubeconfig:
        yield Row(
            metric=f"{of}: until the last pod has a node",
            value=few.bound_seconds,
            unit="s",
            peer="batch/Job",
            peer_value=placed(kubeconfig, "batch_jobs", jobs),
        )
    yield from _writes(of, few)
    yield from _growth(few, live(jobs * 10 // 3, idle_seconds, kubeconfig=kubeconfig))


def _base(jobs: int, idle_seconds: float) -> Life:
    with tempfile.TemporaryDirectory(prefix="brain-bench-base-") as place:
        folders = ("brain", "scaler", "launcher", "collectors", "migrations", "deploy")
        return live(jobs, idle_seconds, older=checkout(Path(place), *folders))


def _writes(of: str, life: Life) -> Iterator[Row]:
    jobs = life.jobs
    told = ", ".join(f"{what} {count / jobs:.2g}" for what, count in life.writes.most_common())
    yield Row(
        metric=f"{of}: writes per job, birth to Running",
        value=life.writes.total() / jobs,
        unit="",
        bar=5.0,
        note=told,
    )
    yield Row(metric=f"{of}: the operator's memory", value=life.memory_mib, unit="MiB", bar=150.0)


def _growth(few: Life, many: Life) -> Iterator[Row]:
    """Return a row with the cost per job relative to that of fewer jobs; at a ratio of 1 the cost
    grows linearly.
    """
    for what, unit, one, other in (
        ("CPU from birth to Running", "ms", 1000 * many.cpu_seconds, 1000 * few.cpu_seconds),
        ("CPU while idle", "‰ of a core", 10 * many.idle_percent, 10 * few.idle_percent),
    ):
        yield Row(
            metric=f"{many.name}: {many.jobs} jobs × 1 pod: {what}, per job",
            value=one / many.jobs,
            unit=unit,
            peer=f"{few.jobs} jobs",
            peer_value=other / few.jobs,
            ratio_bar=_NOISE,
            note="" if many.running == many.jobs else f"{many.running} run",
        )


def crowd(foreign: int) -> Row:
    """Measure memory while the given number of foreign pods exists."""
    found = live(10, 1.0, others=foreign)
    return Row(
        metric=f"{found.name}: the operator's memory beside {foreign:,} foreign pods",
        value=found.memory_mib,
        unit="MiB",
        bar=150.0,
    )


def gangs(jobs: int, kubeconfig: str) -> Iterator[Row]:
    """Measure jobs of many pods; on another cluster they are compared with its scheduler alone."""
    life, pods = live(jobs, 0.0, pods=_PODS_PER_JOB, kubeconfig=kubeconfig), jobs * _PODS_PER_JOB
    of = f"{life.name}: {jobs} jobs × {_PODS_PER_JOB} pods"
    yield Row(metric=f"{of}: until the last runs", value=life.seconds, unit="s")
    if kubeconfig:
        yield Row(
            metric=f"{of}: until the last has a node",
            value=life.bound_seconds,
            unit="s",
            peer="the scheduler alone",
            peer_value=placed(kubeconfig, "pods", pods),
            ratio_bar=1.0,
        )
    yield Row(
        metric=f"{of}: writes per pod",
        value=life.writes["pods"] / pods,
        unit="",
        bar=2.0,
        note=f"all writes {life.writes.total() / pods:.3g}",
    )


def main() -> None:
    """Measure and print the rows; exit with 1 if a bar is not met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--scale", type=float, default=1.0, help="so many of everything, for tries")
    parser.add_argument("--idle-seconds", type=float, default=45.0)
    named = os.environ.get(VARIABLE, "")
    parser.add_argument("--kubeconfig", default=named, help=f"another cluster; else {VARIABLE}")
    parts = ("jobs", "gangs", "crowd", "plans", "slow", "failover", "faults")
    parser.add_argument("--only", choices=parts, action="append")
    parser.add_argument("--skip-emulator", action="store_true", help="the other cluster alone")
    options = parser.parse_args()

    def some(count: int) -> int:
        return max(1, round(count * options.scale))

    of: dict[str, Callable[[str], Iterator[Row]]] = {
        "jobs": lambda at: births(some(300), options.idle_seconds, at),
        "gangs": lambda at: gangs(some(200), at),
        "crowd": lambda at: iter([crowd(some(50_000))]),
        "plans": lambda at: beside_kopf(some(1000), some(200), at),
        "slow": lambda at: iter([faults.slow_server(some(100))]),
        "failover": lambda at: faults.failover(some(150), at),
        "faults": lambda at: faults.survived(some(50), 60.0 * min(1.0, options.scale), at),
    }
    named = options.only or parts
    todo = [] if options.skip_emulator else [(name, "") for name in named]
    if options.kubeconfig:
        todo += [(name, options.kubeconfig) for name in named if name not in _EMULATED]
    table, began = [], time.monotonic()
    for name, at in todo:
        for row in of[name](at):
            print(f"{time.monotonic() - began:5.0f} s  {row.metric}: {row.value}", flush=True)
            table.append(row)
    if options.only or options.skip_emulator or options.scale != 1.0:
        print(markdown(table))
        return
    publish("kubernetes", "Operator and Brain on Kubernetes", table)


if __name__ == "__main__":
    main()
