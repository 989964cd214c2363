"""The service's own state: Prometheus metrics, and the list of degraded parts."""

from datetime import datetime, timedelta
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

#: Health reports a sender whose clock offset is larger than this.
SKEW_LIMIT_SECONDS = 5.0
#: A sender's clock offset is ignored if its last batch is older than this.
SILENCE = timedelta(minutes=10)


class Metrics:
    """The metrics of one app, in a separate registry so that tests do not share counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.ticks = self._counter(
            "ticks", "Number of times that Brain decided about a pool", ["pool", "outcome"]
        )
        self.turn_seconds = Histogram(
            "brain_turn_seconds",
            "Seconds that one decision about a pool took",
            registry=self.registry,
        )
        self.samples = self._counter("samples", "Samples received", ["outcome"])
        self.requests = self._counter("requests", "Requests answered", ["method", "status"])
        #: Counters by method and first digit of the status; cached, because finding a counter by
        #: its labels takes as long as counting.
        self._answered: dict[tuple[str, int], Counter] = {}
        self.refusals = self._counter(
            "refusals", "Requests and connections that a limit refused", ["limit"]
        )
        self.connections = self._gauge("connections", "Open connections")
        self.body_bytes = self._gauge("body_bytes", "Bytes of request bodies in memory")
        self.plans = self._gauge("plans", "Newest plans by state", ["state"])
        self.jobs = self._gauge("jobs", "Unfinished jobs by state", ["state"])
        self.memory_ahead_seconds = self._gauge(
            "memory_ahead_seconds",
            "Seconds for which a job's newest checkpoint has existed only in memory",
            ["job", "name"],
        )
        self.memory_off = self._gauge(
            "memory_off",
            "1 if a job requests a RAM checkpoint but has none",
            ["job", "name"],
        )
        self.memory_lasts_seconds = self._gauge(
            "memory_lasts_seconds",
            "Seconds until a job's memory leak exhausts its memory; absent without a leak",
            ["job", "name"],
        )
        self.usage_rejected = self._gauge(
            "usage_rejected",
            "Machine readings that Brain ignored or corrected",
            ["job", "name", "reason"],
        )
        self.pool_price = self._gauge(
            "pool_price",
            "Utility that one more accelerator, or core, would add to the pool",
            ["pool", "accelerator"],
        )
        self.pool_capacity = self._gauge(
            "pool_capacity",
            "Accelerators, or cores, that the last round could divide among jobs",
            ["pool", "accelerator"],
        )
        self.pool_used = self._gauge(
            "pool_used",
            "Accelerators, or cores, that the last round granted to jobs",
            ["pool", "accelerator"],
        )
        self.pool_gap = self._gauge(
            "pool_gap",
            "Upper bound on the share of the utility that a better division could add",
            ["pool"],
        )
        self.pool_short = self._gauge(
            "pool_short", "Accelerators, or cores, below a project's guarantee", ["pool", "project"]
        )
        self.pool_shares = self._gauge(
            "pool_shares",
            "Jobs that share a pool, by the last round's decision about them",
            ["pool", "outcome"],
        )
        self.undecided = self._gauge(
            "jobs_undecided", "Jobs for which a bug stops Brain from deciding", ["pool"]
        )
        self.database_bytes = self._gauge("database_bytes", "Size of the database on disk in bytes")
        self.lease_held = self._gauge(
            "lease_held", "1 while this process makes the decisions for its pools", ["pool"]
        )
        self.degraded = self._gauge("degraded", "1 while part of the service is degraded", ["what"])
        self.streams = self._gauge("streams", "Open event streams")
        self.skew_seconds = self._gauge(
            "sender_skew_seconds", "Largest clock offset of a sender of telemetry, in seconds"
        )

    def answered(self, method: str, status: int) -> None:
        key = method, status // 100
        counter = self._answered.get(key)
        if counter is None:
            counter = self._answered[key] = self.requests.labels(method, f"{status // 100}xx")
        counter.inc()

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, help: str, labels: list[str]) -> Counter:
        return Counter(f"brain_{name}", help, labels, registry=self.registry)

    def _gauge(self, name: str, help: str, labels: list[str] | None = None) -> Gauge:
        return Gauge(f"brain_{name}", help, labels or [], registry=self.registry)


class ServiceCondition:
    """The degraded parts of the service, one sentence each, and the clock offsets of senders.

    The tick (the loop that runs turns), the receipt of telemetry, and requests that cannot reach
    the database report here. Health, ``/readyz`` and ``/metrics`` read the result. Any thread may
    use this object.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._lock = Lock()
        self._degraded: dict[str, str] = {}
        #: Offset of each sender's clock in its newest batch, and the time of that batch.
        self._offsets: dict[str, tuple[float, datetime]] = {}

    def worsen(self, what: str, sentence: str) -> None:
        """Mark ``what`` (``database``, ``turn:local`` …) as degraded; ``sentence`` describes the
        problem.
        """
        with self._lock:
            self._degraded[what] = sentence
        self._metrics.degraded.labels(what).set(1)

    def mend(self, what: str) -> None:
        """Mark ``what`` as working again; do nothing if it was not degraded."""
        with self._lock:
            was = self._degraded.pop(what, None)
        if was is not None:
            self._metrics.degraded.labels(what).set(0)

    def is_degraded(self, what: str) -> bool:
        """Return True if ``what`` is degraded."""
        with self._lock:
            return what in self._degraded

    def degraded(self) -> tuple[str, ...]:
        """Return the sentences of all degraded parts, in the order in which the parts degraded."""
        with self._lock:
            return tuple(self._degraded.values())

    def note_offset(self, sender: str, seconds: float, now: datetime) -> None:
        """Store the clock offset that a sender's latest batch showed, in place of the earlier
        offset.
        """
        with self._lock:
            known = self._offsets.get(sender)
            self._offsets[sender] = (seconds, now)
        if known is None or known[0] != seconds:
            self.look_at_clocks(now)

    def look_at_clocks(self, now: datetime) -> None:
        """Mark the clock as degraded if a recent sender's offset is above the limit; the sentence
        names the sender with the largest offset.
        """
        with self._lock:
            for sender, (_, heard) in list(self._offsets.items()):
                if now - heard > SILENCE:
                    del self._offsets[sender]
            offsets = {sender: seconds for sender, (seconds, _) in self._offsets.items()}
        worst = max(offsets, key=lambda sender: abs(offsets[sender]), default="")
        skew = offsets.get(worst, 0.0)
        self._metrics.skew_seconds.set(skew)
        if abs(skew) > SKEW_LIMIT_SECONDS:
            off = f"{abs(skew):.0f} s {'behind' if skew > 0 else 'ahead'}"
            self.worsen("clock", f"the clock of sender {worst} is {off}; synchronize it with NTP")
        else:
            self.mend("clock")

    def skew_seconds(self) -> float:
        """Return the largest offset of a recent sender's clock in seconds, with its sign; 0 if
        there is no recent sender.
        """
        with self._lock:
            return max((each for each, _ in self._offsets.values()), key=abs, default=0.0)
