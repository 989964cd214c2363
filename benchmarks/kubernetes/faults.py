"""Measures faults (a slow server, a killed leader, outages): jobs that are created meanwhile must
run all the same.
"""

import time
from collections.abc import Iterator

from benchmarks.kubernetes import workload
from benchmarks.kubernetes.births import begin
from benchmarks.kubernetes.programs import product, server
from benchmarks.report import Row

#: Requests that an operator may have in flight.
_IN_FLIGHT = 8
_PATIENCE_SECONDS = 600.0


def slow_server(jobs: int) -> Row:
    """Return a row with the number of requests that a slow server handles at once."""
    with server() as api, product(api):
        begin(api)
        api.ask("slow", seconds=0.2, times=10**9)
        api.ask("jobs", first=0, count=jobs)
        assert api.until("running", 1 + jobs, _PATIENCE_SECONDS), api.ask("state")
        most = api.ask("state")["most_in_flight"]
    return Row(
        metric="emulator that takes 200 ms: most requests in flight",
        value=most,
        unit="",
        bar=_IN_FLIGHT,
    )


def failover(jobs: int, kubeconfig: str = "") -> Iterator[Row]:
    """Kill the leader of two operators while jobs are being created."""
    served = workload.NAMESPACE if kubeconfig else ""
    with server(kubeconfig) as api, product(api, None, served, lease_seconds=None) as it:
        begin(api)
        it.start_operator()
        # The second has to know the lease and the jobs before it can be of use.
        time.sleep(10.0)
        killed_at = 0.0
        for number in range(jobs):
            api.ask("jobs", first=number, count=1)
            if number == jobs // 3:
                it.kill_leader()
                killed_at = time.monotonic()
            time.sleep(0.1)
        api.until("running", 1 + jobs, _PATIENCE_SECONDS)
        state, after = api.ask("state"), api.ask("first_after", at=killed_at + 0.2)
    took = None if after["at"] is None else after["at"] - killed_at
    yield Row(
        metric=f"{api.name}: failover to a second operator",
        value=took,
        unit="s",
        bar=10.0,
        note="from SIGKILL of the leader to the first pod that another made",
    )
    lost = 1 + jobs - state["running"]
    yield Row(
        metric=f"{api.name}: jobs lost, and pods doubled, by it",
        value=lost + state["made"] - 1 - jobs,
        unit="",
        bar=0.0,
    )


def survived(jobs: int, outage_seconds: float, kubeconfig: str = "") -> Iterator[Row]:
    """Measure jobs that are created after each fault, compared with as many jobs before any fault,
    all with the same operator.

    On a busy machine, creating the jobs may alone take longer than the bars allow, so the cost of a
    fault is the difference.
    """
    served = workload.NAMESPACE if kubeconfig else ""
    with server(kubeconfig, faulty=True) as api, product(api, None, served) as it:
        begin(api)
        made = 0

        def again(name: str, bar: float | None, whole: float | None = None) -> Row:
            nonlocal made
            began, first, made = time.monotonic(), made, made + jobs
            api.ask("jobs", first=first, count=jobs)
            done = api.until("running", 1 + made, _PATIENCE_SECONDS)
            took = time.monotonic() - began if done else None
            pod = api.ask("first_after", at=began)["at"]
            return Row(
                metric=f"{api.name}: {jobs} jobs {name}",
                value=took,
                unit="s",
                peer="nothing broken" if whole else "",
                peer_value=whole,
                bar=bar,
                note="" if pod is None else f"the first pod after {pod - began:.1f} s",
            )

        yield (unbroken := again("while nothing is broken", None))
        api.ask("outage", seconds=0.0)
        yield again("after all connections broke", 15.0, unbroken.value)
        api.ask("storm", times=5)
        yield again("in a storm of 410", 45.0, unbroken.value)
        api.ask("outage", seconds=outage_seconds)
        it.start_again()
        yield again(f"after an outage of {outage_seconds:g} s", 45.0, unbroken.value)
