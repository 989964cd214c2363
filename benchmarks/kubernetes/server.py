"""The cluster in a process of its own, which gets one command per line.

Without ``--kubeconfig`` the process is the emulated API server. With it, the process simulates
nodes and kubelets on that cluster through the API; scheduler and controllers are the cluster's own.
"""

import argparse
import gc
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.kubernetes import workload
from benchmarks.kubernetes.elsewhere import Elsewhere
from benchmarks.kubernetes.tls import TlsServer
from tests.kubernetes.apiserver.core.api import Ask
from tests.kubernetes.apiserver.core.store import Change
from tests.kubernetes.kubelet import FakeKubelet
from tests.kubernetes.scheduling import Scheduler

_ASK = Ask(manager="kubectl")


class Emulated:
    """Carries out the benchmark's commands on the emulator."""

    name = "emulator"

    def __init__(self, directory: Path, definitions: Path) -> None:
        self._server = server = TlsServer(directory)
        server.start()
        server.install(*sorted(definitions.glob("*.yaml")))
        self.seen = workload.Seen()
        self.url, self.kubeconfig = server.url, server.kubeconfig
        self._create("", "namespaces", [{"metadata": {"name": workload.NAMESPACE}}], "")
        self._kubelet, self._scheduler = FakeKubelet(server), Scheduler(server)
        self._kubelet.add_nodes(*workload.NODES, **workload.NODE)
        server.call(lambda: server.api.store.listen(self._hear))

    def _hear(self, change: Change) -> None:
        if change.type != "DELETED":
            self.seen.hear(change.resource[1], change.new.obj, new=change.old is None)

    def jobs(self, first: int, count: int, **what: Any) -> dict[str, Any]:
        """Create jobs."""
        made = [workload.job(first + n, **what) for n in range(count)]
        return self._create(workload.GROUP, "elasticjobs", made)

    def plans(self, count: int, jobs: int) -> dict[str, Any]:
        """Create plans for the given number of jobs."""
        made = [workload.plan(n, jobs) for n in range(count)]
        return self._create(workload.GROUP, "scaleplans", made)

    def others(self, count: int) -> dict[str, Any]:
        """Create running pods that do not belong to the product."""
        nodes = workload.NODES
        made = [
            workload.bare_pod(f"other-{n:05}", node=nodes[n % len(nodes)]) for n in range(count)
        ]
        return self._create("", "pods", made)

    def state(self) -> dict[str, Any]:
        """Return the events so far, and the requests that caused them."""

        def read() -> dict[str, Any]:
            traffic = self._server.traffic
            writes: Counter[str] = Counter()
            for (method, what, code), count in traffic.counts.items():
                if method != "GET" and code < 300 and "leases" not in what:
                    writes[what] += count
            return {
                **self.seen.told(),
                "writes": dict(writes),
                "most_in_flight": traffic.most_in_flight,
            }

        return self._server.call(read)

    def reset(self) -> dict[str, Any]:
        """Count requests from now on."""
        self._server.call(self._server.traffic.reset)
        return {}

    def first_after(self, at: float) -> dict[str, Any]:
        """Return the instant at which the first pod after a given instant was created."""
        return {"at": min((each for each in self.seen.made if each > at), default=None)}

    def slow(self, seconds: float, times: int) -> dict[str, Any]:
        """Answer the operators' next requests late."""
        self._server.faults.slow(seconds, times=times, agent="brain-scaler")
        return {}

    def outage(self, seconds: float) -> dict[str, Any]:
        """Refuse connections for some seconds."""
        with self._server.outage():
            time.sleep(seconds)
        return {}

    def storm(self, times: int) -> dict[str, Any]:
        """Answer the next watches with 410, and end the present ones."""
        self._server.faults.answer(410, times=times, watches=True, agent="brain-scaler")
        self._server.expire()
        return {}

    def close(self) -> None:
        """Do nothing, because the emulator ends with this process."""

    def _create(
        self,
        group: str,
        plural: str,
        bodies: list[dict[str, Any]],
        namespace: str = workload.NAMESPACE,
    ) -> dict[str, Any]:
        server = self._server
        version = workload.VERSION if group else "v1"

        def work(some: list[dict[str, Any]]) -> None:
            kind = server.api.kinds.find(group, version, plural)
            assert kind is not None, f"the server has no {plural}"
            for body in some:
                server.api.create(kind, namespace, body, _ASK)

        # In parts: the server answers operators in between.
        for begin in range(0, len(bodies), 50):
            server.call(lambda begin=begin: work(bodies[begin : begin + 50]))
        return {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--definitions", type=Path, required=True, help="folder of the kinds")
    parser.add_argument("--kubeconfig", type=Path, help="a cluster instead of the emulator")
    parser.add_argument("--faulty", action="store_true", help="reach that cluster by a proxy")
    options = parser.parse_args()
    # Objects live long here: looking for cycles among them costs more than it frees.
    gc.set_threshold(100_000, 50, 100)
    held: Emulated | Elsewhere = (
        Elsewhere(options.directory, options.kubeconfig, faulty=options.faulty)
        if options.kubeconfig
        else Emulated(options.directory, options.definitions)
    )
    hello = {"url": held.url, "kubeconfig": str(held.kubeconfig), "name": held.name}
    print(json.dumps(hello), flush=True)
    try:
        for line in sys.stdin:
            asked = json.loads(line)
            print(json.dumps(getattr(held, asked.pop("do"))(**asked)), flush=True)
    finally:
        held.close()


if __name__ == "__main__":
    main()
