"""Measures ScalePlans that people create: the product answers them, and an operator on kopf only
writes a status for each.
"""

import time
from collections.abc import Iterator

from benchmarks.kubernetes import workload
from benchmarks.kubernetes.births import begin
from benchmarks.kubernetes.programs import Program, product, server
from benchmarks.report import Row

_PATIENCE_SECONDS = 600.0
_MOST_REPLICAS = 8
_STATUS = "scaleplans/status"


def beside_kopf(plans: int, jobs: int, kubeconfig: str = "") -> Iterator[Row]:
    """Create plans at once for running jobs of one pod; plans of a job supersede one another."""
    served = workload.NAMESPACE if kubeconfig else ""
    with server(kubeconfig) as api, product(api, None, served) as it:
        begin(api)
        api.ask("jobs", first=0, count=jobs, most=_MOST_REPLICAS)
        assert api.until("running", 1 + jobs, _PATIENCE_SECONDS), api.ask("state")
        time.sleep(5.0)
        api.ask("reset")
        cpu, began = it.cpu_seconds(), time.monotonic()
        api.ask("plans", count=plans, jobs=jobs)
        done = api.until("answered", plans, _PATIENCE_SECONDS)
        seconds, used = time.monotonic() - began, it.cpu_seconds() - cpu
        state, memory = api.ask("state"), it.operators[0].use().memory_mib
    peer_seconds, peer_cpu, peer_memory = _kopf(plans, kubeconfig)
    of = f"{api.name}: {plans:,} ScalePlans for {jobs} jobs"
    yield Row(
        metric=f"{of}: until the last is answered",
        value=seconds if done else None,
        unit="s",
        peer="kopf, a status each",
        peer_value=peer_seconds,
        bar=90.0,
        note="" if done else f"{state['answered']} answered",
    )
    yield Row(
        metric=f"{of}: CPU of operator and Brain, resizing included",
        value=used,
        unit="s",
        peer="kopf, a status each",
        peer_value=peer_cpu,
    )
    yield Row(
        metric=f"{of}: the operator's memory",
        value=memory,
        unit="MiB",
        peer="kopf",
        peer_value=peer_memory,
        bar=150.0,
        ratio_bar=1.0,
    )
    statuses = sum(n for what, n in state["writes"].items() if what.endswith(_STATUS))
    yield Row(metric=f"{of}: statuses written per plan", value=statuses / plans, unit="")


def _kopf(plans: int, kubeconfig: str) -> tuple[float, float, float]:
    """Return the seconds, CPU seconds and MiB that kopf needs for the given number of plans."""
    with server(kubeconfig) as api:
        api.ask("plans", count=plans, jobs=1)
        began = time.monotonic()
        program = Program("benchmarks.kubernetes.peer", environment={"KUBECONFIG": api.kubeconfig})
        api.needs.append(program)
        try:
            assert api.until("answered", plans, _PATIENCE_SECONDS), api.ask("state")
            seconds, use = time.monotonic() - began, program.use()
        finally:
            program.end()
    return seconds, use.cpu_seconds, use.memory_mib
