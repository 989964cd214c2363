"""What does reconciling cost, and what does it survive?

    make bench-kubernetes

Our controller runtime and kopf write the status of the same ScalePlans at the same emulated API
server (the one that the tests prove against a recording of Kubernetes 1.36; here behind TLS and
with 20 ms for each request), each in a process of its own, from its start until the last status is
written. CPU seconds are user and system of the operator's process, of the thriftiest of three
rounds; memory is the most that was ever resident, the median of the rounds. Neither posts events.
Both sign in by the official client, as kopf does by itself where that is installed. Pods are made
by server-side apply, beside the same requests from a program that does nothing else. Failures are
real: SIGKILL, a server that listens no more, watches that are answered 410.
"""

import argparse
import signal
import time
from dataclasses import dataclass, replace
from statistics import median

from benchmarks.kubernetes import workload
from benchmarks.kubernetes.programs import Program, Use, running, server
from benchmarks.report import Row, markdown, publish

OURS, PEER, RAW = (f"benchmarks.kubernetes.{name}" for name in ("ours", "peer", "raw"))
#: Requests that our operator may have in flight.
IN_FLIGHT = 8
ROUNDS = 3
#: A request takes so long at least: half of what one took at the real server, which has a network
#: and a disk. Without it an operator that sends everything at once never has much on its way.
LATENCY_SECONDS = 0.02
_PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One operator's way through so many plans."""

    use: Use
    seconds: float
    applied: int
    requests: int
    most_in_flight: int


def plans(count: int, module: str, *arguments: str, patience: float = _PATIENCE_SECONDS) -> Run:
    """Have an operator write the status of ``count`` plans that are there when it starts."""
    with server() as api:
        api.ask("plans", first=0, count=count)
        api.ask("slow", seconds=LATENCY_SECONDS, times=10**9)
        began = time.monotonic()
        with running(api, module, *arguments) as program:
            done = api.until(lambda state: state["applied"] == count, patience, program)
            assert done, f"{module} ended, or wrote {api.ask('state')} in {patience:.0f} s"
            seconds = time.monotonic() - began
            # What it does about its own writes belongs to it.
            time.sleep(2.0)
            use, state = program.use(), api.ask("state")
    return Run(
        use=use,
        seconds=seconds,
        applied=state["applied"],
        requests=state["requests"],
        most_in_flight=state["most_in_flight"],
    )


def beside_kopf(count: int) -> list[Row]:
    """The same plans by both."""
    # In turn, and the thriftiest of each: what else the machine does makes a second dearer.
    rounds = [(plans(count, OURS, "plans"), plans(count, PEER)) for _ in range(ROUNDS)]
    ours, peer = (
        replace(
            min(runs, key=lambda run: run.seconds),
            use=Use(
                cpu_seconds=min(run.use.cpu_seconds for run in runs),
                memory_mib=median(run.use.memory_mib for run in runs),
            ),
            requests=max(run.requests for run in runs),
            most_in_flight=max(run.most_in_flight for run in runs),
        )
        for runs in zip(*rounds, strict=True)
    )
    light = plans(count, PEER, "--light")
    of = f"{count:,} ScalePlans"
    return [
        Row(
            metric=f"{of}: CPU",
            value=ours.use.cpu_seconds,
            unit="s",
            peer="kopf",
            peer_value=peer.use.cpu_seconds,
            ratio_bar=1 / 0.3,
            note=f"kopf with its lightest sign-in takes {light.use.cpu_seconds:.2f} s",
        ),
        Row(
            metric=f"{of}: memory",
            value=ours.use.memory_mib,
            unit="MiB",
            peer="kopf",
            peer_value=peer.use.memory_mib,
            ratio_bar=1 / 0.5,
            note=f"kopf with its lightest sign-in takes {light.use.memory_mib:.0f} MiB",
        ),
        Row(
            metric=f"{of}: writes per object",
            value=ours.requests / count,
            unit="",
            peer="kopf",
            peer_value=peer.requests / count,
            bar=1.0,
        ),
        Row(
            metric=f"{of}: until the last status",
            value=ours.seconds,
            unit="s",
            peer="kopf",
            peer_value=peer.seconds,
        ),
        Row(
            metric=f"{of}: most requests in flight",
            value=ours.most_in_flight,
            unit="",
            peer="kopf",
            peer_value=peer.most_in_flight,
            bar=IN_FLIGHT,
        ),
    ]


def many(count: int) -> list[Row]:
    """More plans than kopf gets through in 150 s (as measured at a real server)."""
    ours = plans(count, OURS, "plans")
    of = f"{count:,} ScalePlans"
    return [
        Row(metric=f"{of}: until the last status", value=ours.seconds, unit="s", bar=90.0),
        Row(metric=f"{of}: memory", value=ours.use.memory_mib, unit="MiB", bar=150.0),
        Row(metric=f"{of}: writes per object", value=ours.requests / count, unit="", bar=1.0),
    ]


def slow_server() -> Row:
    """How many requests a slow server sees at once."""
    with server() as api:
        api.ask("plans", first=0, count=200)
        api.ask("slow", seconds=0.2, times=200)
        with running(api, OURS, "plans"):
            api.until(lambda state: state["applied"] == 200, _PATIENCE_SECONDS)
        most = api.ask("state")["most_in_flight"]
    return Row(
        metric="a server that takes 200 ms: most requests in flight",
        value=most,
        unit="",
        bar=IN_FLIGHT,
    )


def pods(jobs: int) -> list[Row]:
    """The pods of so many jobs, beside the same requests without an operator."""
    count = jobs * workload.PODS_PER_JOB
    with server() as api:
        api.ask("jobs", count=jobs)
        began = time.monotonic()
        raw = Program(RAW, api.url, "--connections", str(IN_FLIGHT - 1))
        assert raw.process.wait(_PATIENCE_SECONDS) == 0, "the pods cannot be made"
        raw_seconds = time.monotonic() - began
    with server() as api:
        api.ask("jobs", count=jobs)
        began = time.monotonic()
        with running(api, OURS, "jobs"):
            done = api.until(lambda state: state["pods"] == count, _PATIENCE_SECONDS)
            seconds = time.monotonic() - began
        state = api.ask("state")
    assert done, state
    of = f"{jobs} jobs × {workload.PODS_PER_JOB} pods"
    return [
        Row(
            metric=of,
            value=seconds,
            unit="s",
            peer="the requests alone",
            peer_value=raw_seconds,
            ratio_bar=0.7,
            note=f"{count / seconds:.0f} pods/s",
        ),
        Row(
            metric=f"{of}: requests per pod", value=state["pod_requests"] / count, unit="", bar=1.0
        ),
    ]


def failover(count: int) -> list[Row]:
    """Kill the leader of two while plans keep coming."""
    with server() as api:
        arguments = ("plans", "--lease")
        api.ask("plans", first=0, count=1)
        with running(api, OURS, *arguments) as first:
            api.until(lambda state: state["applied"] == 1, _PATIENCE_SECONDS)
            with running(api, OURS, *arguments):
                # The second has to know the lease and the plans before it can be of use.
                time.sleep(5.0)
                killed_at = 0.0
                for number in range(1, count):
                    api.ask("plans", first=number, count=1)
                    if number == count // 3:
                        first.process.send_signal(signal.SIGKILL)
                        killed_at = time.monotonic()
                    time.sleep(0.05)
                api.until(lambda state: state["applied"] == count, 60.0)
                state, after = api.ask("state"), api.ask("first_after", at=killed_at + 0.2)
    lost, doubled = count - state["applied"], state["written_twice"]
    took = None if after["at"] is None else after["at"] - killed_at
    note = "from SIGKILL to the first status that another wrote"
    return [
        Row(metric="failover to a second operator", value=took, unit="s", bar=15.0, note=note),
        Row(metric="plans lost or doubled by it", value=lost + doubled, unit="", bar=0.0),
    ]


def survived(outage_seconds: float) -> list[Row]:
    """Plans that are made after a fault; all of one operator's life."""
    rows = []
    with server() as api, running(api, OURS, "plans") as operator:
        made = 0

        def again(name: str, bar: float) -> Row:
            nonlocal made
            began, made = time.monotonic(), made + 50
            api.ask("plans", first=made - 50, count=50)
            api.until(lambda state: state["applied"] == made, 120.0)
            state = api.ask("state")
            lost = made - state["applied"] + state["written_twice"]
            took = time.monotonic() - began if lost == 0 else None
            return Row(metric=name, value=took, unit="s", bar=bar)

        again("", 0.0)
        api.ask("outage", seconds=0.0)
        rows.append(again("50 plans after a restart of the API server", 15.0))
        api.ask("storm", times=5)
        rows.append(again("50 plans in a storm of 410", 45.0))
        api.ask("outage", seconds=outage_seconds)
        rows.append(again(f"50 plans after an outage of {outage_seconds:.0f} s", 45.0))
        used = operator.use()
    rows.append(Row(metric="CPU of all that, start included", value=used.cpu_seconds, unit="s"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", choices=("kopf", "many", "slow", "pods", "failover", "faults"))
    only = parser.parse_args().only
    parts = {
        "kopf": lambda: beside_kopf(1000),
        "many": lambda: many(5000),
        "slow": lambda: [slow_server()],
        "pods": lambda: pods(200),
        "failover": lambda: failover(300),
        "faults": lambda: survived(60.0),
    }
    table = [row for name, part in parts.items() if only in (None, name) for row in part()]
    if only is not None:
        print(markdown(table))
        return
    publish("kubernetes", "Reconciling on Kubernetes", table)


if __name__ == "__main__":
    main()
