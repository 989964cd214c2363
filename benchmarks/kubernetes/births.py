"""Measures jobs from creation to Running, and their cost while nothing happens."""

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kubernetes import workload
from benchmarks.kubernetes.programs import Product, Server, product, server

_PATIENCE_SECONDS = 600.0
#: What births leave to do is done after so long.
_SETTLE_SECONDS = 20.0
#: Number of the job that is born before anything is measured.
_FIRST = 9999


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A number of jobs in one run of the product."""

    #: The cluster's, as rows name it.
    name: str
    jobs: int
    cpu_seconds: float
    #: Until the last pod has a node, and until the last job's status says Running.
    bound_seconds: float
    seconds: float
    idle_percent: float
    writes: Counter[str]
    memory_mib: float
    running: int

    @property
    def told(self) -> str:
        """Return a phrase that says how long all jobs took, or how many run."""
        if self.running < self.jobs:
            return f"{self.seconds:.0f} s: no, {self.running} run"
        return f"{self.seconds:.0f} s"


def live(
    jobs: int,
    idle_seconds: float,
    *,
    pods: int = 1,
    older: Path | None = None,
    others: int = 0,
    kubeconfig: str = "",
) -> Life:
    """Create jobs at once, wait until they run, and watch them while nothing happens.

    ``older`` names a commit whose programs run instead; ``others`` is the number of foreign pods
    that exist before.
    """
    namespace = workload.NAMESPACE if kubeconfig else ""
    with server(kubeconfig, older) as api:
        if others:
            api.ask("others", count=others)
        with product(api, older, namespace) as it:
            begin(api)
            return _live(api, it, jobs, pods, idle_seconds)


def begin(api: Server) -> None:
    """Let a first job run, so that the start of the programs is not measured."""
    api.ask("jobs", first=_FIRST, count=1)
    assert api.until("running", 1, _PATIENCE_SECONDS), f"no job runs: {api.ask('state')}"
    api.ask("reset")


def _live(api: Server, it: Product, jobs: int, pods: int, idle_seconds: float) -> Life:
    before, cpu = api.ask("state"), it.cpu_seconds()
    began = time.monotonic()
    api.ask("jobs", first=0, count=jobs, pods=pods)
    api.until("bound", before["bound"] + jobs * pods, _PATIENCE_SECONDS)
    bound_seconds = time.monotonic() - began
    api.until("running", 1 + jobs, max(1.0, _PATIENCE_SECONDS - bound_seconds))
    seconds, used = time.monotonic() - began, it.cpu_seconds() - cpu
    state = api.ask("state")
    idle = _idle(it, idle_seconds) if idle_seconds else 0.0
    return Life(
        name=api.name,
        jobs=jobs,
        cpu_seconds=used,
        bound_seconds=bound_seconds,
        seconds=seconds,
        idle_percent=idle,
        writes=Counter(state["writes"]),
        memory_mib=max(each.use().memory_mib for each in it.operators),
        running=state["running"] - 1,
    )


def _idle(it: Product, seconds: float) -> float:
    time.sleep(_SETTLE_SECONDS)
    cpu = it.cpu_seconds()
    time.sleep(seconds)
    return 100 * (it.cpu_seconds() - cpu) / seconds


def placed(kubeconfig: str, what: str, pods: int) -> float:
    """Return the seconds until the other cluster has assigned nodes to the given number of foreign
    pods.
    """
    with server(kubeconfig) as api:
        began = time.monotonic()
        api.ask(what, count=pods)
        assert api.until("bound", pods, _PATIENCE_SECONDS), api.ask("state")
        return time.monotonic() - began
