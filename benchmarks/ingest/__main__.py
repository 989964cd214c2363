"""``make bench-ingest``: measures the cost of ingesting telemetry, on SQLite and on PostgreSQL.

    cost      processor time per sample of the service and its database server: one sample per
              request, then 100; compared in turn with the plain service of ``plain.py``. Also
              per report of a node, compared with stores of time series (``peers.py``)
    overload  20 times the clients of the peak, which retry immediately
    rate      the reports of 10,000 nodes every 15 s and of 2,000 jobs every 5 s
    bytes     the size of the tables of samples, with their indexes

The service is started by ``python -m brain.service`` and receives the samples through its route; it
answers 200 after the commit. Its turns are made rare, because they are no part of ingest. Clients
run on the same machine, but their processor time is not counted.
"""

from collections.abc import Iterator, Sequence
from statistics import median

from benchmarks.ingest import services
from benchmarks.ingest.load import Client, Told, closed, open_loop
from benchmarks.ingest.peers import MISSING, peers
from benchmarks.ingest.services import Running
from benchmarks.report import Row, publish

KINDS = ("SQLite", "PostgreSQL")
#: Clients that send one sample a request, and those that send 100; rounds, and seconds of each.
FEW, BATCHING, ROUNDS, SECONDS = 64, 16, 2, 4.0
BATCH, OVERLOAD = 100, 20
#: Least time of a store of time series per report, over ours.
STORE_BARS = {"VictoriaMetrics": 1.0, "Prometheus": 1 / 0.6}
#: Reports per second of 10,000 nodes and of 2,000 jobs.
NODE_RATE, JOB_RATE, RATE_SECONDS = 10_000 / 15, 2_000 / 5, 20.0


def main() -> None:
    """Measure and print the rows; exit with 1 if a bar is not met."""
    rows = [row for kind in KINDS for row in measured(kind)]
    publish("ingest", "Ingest, beside a plain service", rows, _MORE)


def measured(kind: str) -> Iterator[Row]:
    """Return the rows of one kind of database."""
    with (
        services.database(kind) as ours,
        services.database(kind) as theirs,
        services.brain(ours) as (brain, service),
        services.plain(theirs) as plain,
        peers(FEW) as stores,
    ):
        one = services.job_senders(service, FEW, batch=1)
        hundred = services.job_senders(service, BATCHING, batch=BATCH)
        nodes = services.node_senders(service, FEW)
        flat = services.plain_senders(plain, FEW, batch=1)
        arms = ((plain, flat), (brain, one), (brain, hundred), (brain, nodes), *stores.values())
        services.settle(brain)
        # Connections, code and statements are warm.
        for running, clients in arms:
            cost(running, clients, seconds=1.0)
        rounds = [[cost(*arm) for arm in arms] for _ in range(ROUNDS)]
        theirs_us, one_us, hundred_us, node_us, *stores_us = map(median, zip(*rounds, strict=True))
        spread = f"median of {ROUNDS} rounds"
        yield _cost_row(kind, "one per request", one_us, theirs_us, 20, spread)
        yield _cost_row(kind, f"{BATCH} per request", hundred_us, theirs_us, 200, spread)
        for name, store_us in zip(stores, stores_us, strict=True):
            yield _node_row(kind, node_us, name, store_us)
        if MISSING:
            yield _node_row(kind, node_us)
        yield _size(kind, ours, "throughput", "job samples", 120)
        yield _size(kind, ours, "host", "node reports of 8 GPUs", 400)
        yield from overload(kind, brain, one)
        yield rate(kind, brain, one, nodes, theirs_us)


def cost(running: Running, clients: Sequence[Client], *, seconds: float = SECONDS) -> float:
    """Return the microseconds of processor time per acknowledged sample."""
    before = running.cpu_seconds
    told = closed(clients, seconds=seconds)
    assert told.samples, f"nothing was acknowledged: {told.statuses}"
    return 1e6 * (running.cpu_seconds - before) / told.samples


def overload(kind: str, brain: Running, clients: Sequence[Client]) -> Iterator[Row]:
    """Return rows about 20 times the clients: how many fewer samples are acknowledged, and the
    memory that the service needs.
    """
    peak = closed(clients, seconds=SECONDS).samples
    told = closed([client for client in clients for _ in range(OVERLOAD)], seconds=2 * SECONDS)
    goodput = told.samples / 2
    yield Row(
        metric=f"{kind}: samples per second at the peak, over those under {OVERLOAD} × the clients",
        value=peak / goodput if goodput else None,
        unit="×",
        bar=1 / 0.7,
        note=f"statuses {dict(told.statuses)}",
    )
    yield Row(
        metric=f"{kind}: memory of the service after that", value=brain.memory_mib, unit="MiB"
    )


def rate(
    kind: str, brain: Running, jobs: Sequence[Client], nodes: Sequence[Client], plain_us: float
) -> Row:
    """Return the share of a core that the sample rate of a large cluster takes."""
    clients = [
        *((client, len(nodes) / NODE_RATE) for client in nodes),
        *((client, len(jobs) / JOB_RATE) for client in jobs),
    ]
    before, memory = brain.cpu_seconds, brain.memory_mib
    told = open_loop(clients, seconds=RATE_SECONDS)
    seconds = brain.cpu_seconds - before
    asked = RATE_SECONDS * (NODE_RATE + JOB_RATE)
    return Row(
        metric=f"{kind}: 10,000 nodes / 15 s + 2,000 jobs / 5 s, share of a core",
        value=seconds / RATE_SECONDS,
        unit="cores",
        peer="plain service, extrapolated",
        peer_value=plain_us * 1e-6 * (NODE_RATE + JOB_RATE),
        ratio_bar=15,
        note=(
            f"{RATE_SECONDS:g} s of it by {len(clients)} clients; {told.samples / asked:.0%} of it "
            f"came, {_refused(told)} not acknowledged, p99 {1000 * told.p99:.0f} ms, memory "
            f"{brain.memory_mib - memory:+.0f} MiB; for the peer a report counts as a job sample"
        ),
    )


def _refused(told: Told) -> int:
    return sum(count for status, count in told.statuses.items() if status != 200)


def _cost_row(kind: str, what: str, ours: float, theirs: float, bar: float, note: str) -> Row:
    return Row(
        metric=f"{kind}: processor time per job sample, {what}",
        value=ours,
        unit="µs",
        peer="plain service, one per request",
        peer_value=theirs,
        ratio_bar=bar,
        note=note,
    )


def _node_row(kind: str, ours: float, peer: str = "", theirs: float | None = None) -> Row:
    return Row(
        metric=f"{kind}: processor time per node report of 8 GPUs, one per request",
        value=ours,
        unit="µs",
        peer=f"{peer}, remote write" if peer else "",
        peer_value=theirs,
        ratio_bar=STORE_BARS.get(peer),
        note=f"median of {ROUNDS} rounds" if peer else f"not installed: {', '.join(MISSING)}",
    )


def _size(kind: str, at: services.Database, samples: str, what: str, bar: float) -> Row:
    size, count = services.size_of(at, samples)
    return Row(
        metric=f"{kind}: a million {what}",
        value=size / count,
        unit="MB",
        bar=bar,
        note=f"of {count} rows",
    )


_MORE = """
The plain service signs nobody in, has no limits, keeps no clocks of its senders and does not know a
sample again. Stores of time series (Debian's packages `victoria-metrics` and `prometheus`) get a
remote write of 32 figures for each node report; they answer before anything is on disk, and Brain
after its commit.
"""

if __name__ == "__main__":
    main()
