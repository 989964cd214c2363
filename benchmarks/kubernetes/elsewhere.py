"""A cluster that a kubeconfig names: its scheduler and controllers are real, and its nodes and
kubelets are simulated.

At the end the benchmark deletes its namespace and its nodes; the kinds stay.
"""

import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from aiohttp import web

from benchmarks.kubernetes import workload
from scaler.kubernetes.kinds.upgrade import upgrade
from scaler.kubernetes.operator.jobs import JOB
from scaler.kubernetes.runtime import Manager, StoreChange
from scaler.kubernetes.runtime.cluster import POD, Cluster, Kind, connect
from scaler.kubernetes.status.plan_status import PLAN
from tests.kubernetes.apiserver.server import kubeconfig as write_kubeconfig
from tests.kubernetes.apiserver.wire.faults import Faults
from tests.kubernetes.apiserver.wire.listening import Listening
from tests.kubernetes.clusters import MARK, client, upstream_of
from tests.kubernetes.eventually import eventually
from tests.kubernetes.kubelet import FakeKubelet
from tests.kubernetes.real.cluster import controlled
from tests.kubernetes.real.outside import Outside, path
from tests.kubernetes.real.passing import Passing, Upstream

#: Pods of the benchmark go to its nodes.
_THERE = {
    "nodeSelector": {MARK: "yes"},
    "tolerations": [{"key": MARK, "operator": "Exists"}],
}
_NAMESPACE = ("", workload.NAMESPACE)
#: What the benchmark, its kubelets and the scheduler write themselves.
_NOT_OURS = re.compile(r"elasticjobs/$|scaleplans/$|pods/(status|binding)|nodes|leases")
_COUNTED = re.compile(r"apiserver_request_total\{(.*)\} (\S+)")


class _Between(Listening):
    """Passes requests on to the API server of a kubeconfig, and causes faults on request."""

    def __init__(self, kubeconfig: Path) -> None:
        super().__init__("between")
        self.faults = Faults()
        self._passing = Passing(Upstream(*upstream_of(kubeconfig)), self.faults)
        self.start()

    def application(self) -> web.Application:
        """Return the application that passes requests on."""
        return self._passing.application()

    def end_watches(self) -> None:
        """End every watch cleanly."""
        self._passing.end_watches()

    def expire(self) -> None:
        """End every watch as the API server does when its history has expired."""
        self.call(lambda: self._passing.end_watches(expire=True))


class Elsewhere:
    """Carries out the benchmark's commands on a real cluster."""

    def __init__(self, directory: Path, kubeconfig: Path, *, faulty: bool) -> None:
        #: Stands before the API server where faults are wanted.
        self._between = _Between(kubeconfig) if faulty else None
        self.url, self.kubeconfig = "", kubeconfig
        if self._between is not None:
            self.url = self._between.url
            self.kubeconfig = write_kubeconfig(directory, self.url, "admin", "", "default")
        self._http = client(kubeconfig, "benchmark")
        self.name = f"Kubernetes {self._http.get('/version').json()['gitVersion']}"
        self.seen, self._before = workload.Seen(), Counter[str]()
        door = Cluster(connect(kubeconfig=str(kubeconfig)))
        upgrade(door)
        self.hands = Outside(
            kubeconfig,
            controlled=controlled(kubeconfig),
            scheduler="default-scheduler",
            namespaces=[workload.NAMESPACE],
        )
        self.hands.create(("", "namespaces"), {"metadata": {"name": workload.NAMESPACE}})
        self._kubelet = FakeKubelet(self)
        self._kubelet.add_nodes(*workload.NODES, **workload.NODE)
        self._manager = Manager(door, namespaces=[workload.NAMESPACE])
        for kind in (POD, JOB, PLAN):
            self._manager.listen(kind, lambda change, kind=kind: self._hear(kind, change))
        self._manager.start()
        assert self._manager.synced(60.0)

    def _hear(self, kind: Kind, change: StoreChange) -> None:
        if change.new is not None:
            self.seen.hear(kind.plural, change.new, new=change.old is None)

    def jobs(self, first: int, count: int, **what: Any) -> dict[str, Any]:
        """Create jobs."""
        made = [workload.job(first + n, **what, **_THERE) for n in range(count)]
        return self._create((workload.GROUP, "elasticjobs"), made)

    def plans(self, count: int, jobs: int) -> dict[str, Any]:
        """Create plans for the given number of jobs."""
        made = [workload.plan(n, jobs) for n in range(count)]
        return self._create((workload.GROUP, "scaleplans"), made)

    def pods(self, count: int) -> dict[str, Any]:
        """Create pods that only the scheduler handles."""
        made = [workload.bare_pod(f"bare-{n:05}") for n in range(count)]
        for pod in made:
            pod["spec"] |= _THERE
        return self._create(("", "pods"), made)

    def batch_jobs(self, count: int) -> dict[str, Any]:
        """Create Jobs of one pod, whose pods the cluster's own controller creates."""
        template = {"spec": workload.pod_spec() | _THERE | {"restartPolicy": "Never"}}
        made = [
            {"metadata": {"name": f"batch-{n:05}"}, "spec": {"template": template}}
            for n in range(count)
        ]
        return self._create(("batch", "jobs"), made)

    def state(self) -> dict[str, Any]:
        """Return the events so far, and the writes of the operator (and the Events written by
        anybody).
        """
        return {**self.seen.told(), "writes": dict(self._writes() - self._before)}

    def reset(self) -> dict[str, Any]:
        """Count requests from now on."""
        self._before = self._writes()
        return {}

    def first_after(self, at: float) -> dict[str, Any]:
        """Return the instant at which the first pod after a given instant was created."""
        return {"at": min((each for each in self.seen.made if each > at), default=None)}

    def outage(self, seconds: float) -> dict[str, Any]:
        """Refuse connections for some seconds."""
        assert self._between is not None, "no proxy stands before this cluster"
        with self._between.outage():
            time.sleep(seconds)
        return {}

    def storm(self, times: int) -> dict[str, Any]:
        """Answer the next watches with 410, and end the present ones."""
        assert self._between is not None, "no proxy stands before this cluster"
        self._between.faults.answer(410, times=times, watches=True, agent="brain-scaler")
        self._between.expire()
        return {}

    def _writes(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for labels, count in _COUNTED.findall(self._http.get("/metrics").text):
            label = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            what = f"{label['resource']}/{label['subresource']}"
            reads = label["verb"] in ("GET", "LIST", "WATCH")
            if not reads and label["code"] < "300" and not _NOT_OURS.match(what):
                found[what.rstrip("/")] += round(float(count))
        return found

    def close(self) -> None:
        """Delete everything that was created."""
        self._manager.stop()
        if self._between is not None:
            self._between.close()
        self._kubelet.close()
        # Nobody would confirm that pods of these nodes ended.
        for pod in self.hands.all_of(("", "pods")):
            key = (workload.NAMESPACE, pod["metadata"]["name"])
            self._http.request("DELETE", path(("", "pods"), key), json={"gracePeriodSeconds": 0})
        self._http.delete(path(("", "namespaces"), _NAMESPACE))
        eventually(lambda: self._http.get(path(("", "namespaces"), _NAMESPACE)).is_error, 300.0)
        self.hands.close()

    def _create(self, resource: tuple[str, str], bodies: list[dict[str, Any]]) -> dict[str, Any]:
        where = path(resource, (workload.NAMESPACE, ""))
        # As many at once as an operator has in flight.
        with ThreadPoolExecutor(8) as pool:
            for answer in pool.map(lambda body: self._http.post(where, json=body), bodies):
                assert answer.is_success, answer.text
        return {}
