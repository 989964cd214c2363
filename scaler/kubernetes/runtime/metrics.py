"""Metrics of the runtime for Prometheus, under controller-runtime's and client-go's names.

So dashboards and alerts that were made for operators in Go work without a change.
"""

from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

#: Buckets in seconds: those of controller-runtime for reconciles, thinned out.
_RECONCILE = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
#: Buckets in seconds: those of client-go for queues and requests.
_QUEUE = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
_REQUEST = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)

#: Method names of ``rest_client_requests_total``.
_METHODS = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "evict": "POST",
    "apply": "PATCH",
    "patch": "PATCH",
    "delete": "DELETE",
}


class RuntimeMetrics:
    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._requests()
        self._queues()
        self._controllers()
        self._leader = self._gauge(
            "leader_election_master_status", "1 while this process holds the lease.", "name"
        )

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def requests(self, host: str) -> "RequestSight":
        """Return the observer of requests to ``host``, a URL."""
        return RequestSight(self, urlsplit(host).netloc)

    def queue(self, name: str) -> "QueueSight":
        """Return the observer of the queue of that name."""
        return QueueSight(self, name)

    def controller(self, name: str, workers: int) -> "ControllerSight":
        """Return the observer of the controller of that name."""
        self.workers.labels(name).set(workers)
        return ControllerSight(self, name)

    def leads(self, name: str, leading: bool) -> None:
        """Record whether this process holds the lease of that name."""
        self._leader.labels(name).set(leading)

    def _requests(self) -> None:
        self.sent = self._counter(
            "rest_client_requests", "HTTP requests by code, method and host.", "code method host"
        )
        self.latency = self._histogram(
            "rest_client_request_duration_seconds",
            "Seconds from request to answer.",
            "verb host",
            _REQUEST,
        )

    def _queues(self) -> None:
        self.depth = self._gauge("workqueue_depth", "Keys that wait.", "name")
        self.adds = self._counter("workqueue_adds", "Keys added to the queue.", "name")
        self.retries = self._counter("workqueue_retries", "Keys that failed.", "name")
        self.waited = self._histogram(
            "workqueue_queue_duration_seconds",
            "Seconds that a key waited in the queue.",
            "name",
            _QUEUE,
        )
        self.worked = self._histogram(
            "workqueue_work_duration_seconds",
            "Seconds that a key took to reconcile.",
            "name",
            _QUEUE,
        )

    def _controllers(self) -> None:
        self.reconciles = self._counter(
            "controller_runtime_reconcile", "Reconciles by outcome.", "controller result"
        )
        self.errors = self._counter(
            "controller_runtime_reconcile_errors", "Reconciles that failed.", "controller"
        )
        self.panics = self._counter(
            "controller_runtime_reconcile_panics", "Reconciles that ended with a bug.", "controller"
        )
        self.seconds = self._histogram(
            "controller_runtime_reconcile_time_seconds",
            "Seconds of a reconcile.",
            "controller",
            _RECONCILE,
        )
        self.workers = self._gauge(
            "controller_runtime_max_concurrent_reconciles", "Workers.", "controller"
        )
        self.active = self._gauge(
            "controller_runtime_active_workers", "Workers at work.", "controller"
        )

    def _counter(self, name: str, help: str, labels: str) -> Counter:
        return Counter(name, help, labels.split(), registry=self.registry)

    def _gauge(self, name: str, help: str, labels: str) -> Gauge:
        return Gauge(name, help, labels.split(), registry=self.registry)

    def _histogram(
        self, name: str, help: str, labels: str, buckets: tuple[float, ...]
    ) -> Histogram:
        return Histogram(name, help, labels.split(), registry=self.registry, buckets=buckets)


class RequestSight:
    """Observes every answer of the API server."""

    def __init__(self, metrics: RuntimeMetrics, host: str) -> None:
        self._metrics, self._host = metrics, host
        # A look-up of a series by its labels costs more than the count itself.
        self._sent: dict[tuple[str, int], Counter] = {}
        self._latency: dict[str, Histogram] = {}

    def __call__(self, verb: str, code: int, seconds: float) -> None:
        sent, latency = self._sent.get((verb, code)), self._latency.get(verb)
        if sent is None:
            said = str(code) if code else "<error>"
            sent = self._metrics.sent.labels(said, _METHODS.get(verb, "GET"), self._host)
            self._sent[verb, code] = sent
        if latency is None:
            latency = self._metrics.latency.labels(verb.upper(), self._host)
            self._latency[verb] = latency
        sent.inc()
        latency.observe(seconds)


class QueueSight:
    def __init__(self, metrics: RuntimeMetrics, name: str) -> None:
        self._depth, self._adds = metrics.depth.labels(name), metrics.adds.labels(name)
        self._waited, self._worked = metrics.waited.labels(name), metrics.worked.labels(name)
        self._retries = metrics.retries.labels(name)

    def depth(self, keys: int) -> None:
        self._depth.set(keys)

    def added(self) -> None:
        self._adds.inc()

    def taken(self, waited_seconds: float) -> None:
        self._waited.observe(waited_seconds)

    def worked(self, seconds: float) -> None:
        self._worked.observe(seconds)

    def retried(self) -> None:
        self._retries.inc()


class ControllerSight:
    def __init__(self, metrics: RuntimeMetrics, name: str) -> None:
        self._metrics, self._name = metrics, name
        self._seconds, self._active = metrics.seconds.labels(name), metrics.active.labels(name)
        self._ends = {
            outcome: metrics.reconciles.labels(name, outcome)
            for outcome in ("success", "requeue_after", "requeue", "error")
        }

    def reconciled(self, outcome: str, seconds: float) -> None:
        self._ends[outcome].inc()
        self._seconds.observe(seconds)
        if outcome == "error":
            self._metrics.errors.labels(self._name).inc()

    def panicked(self) -> None:
        self._metrics.panics.labels(self._name).inc()

    def active(self, difference: int) -> None:
        self._active.inc(difference)
