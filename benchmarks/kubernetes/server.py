"""The emulated API server in a process of its own, told what to do line by line."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.kubernetes import workload
from benchmarks.kubernetes.tls import TlsServer
from tests.kubernetes.apiserver import Server
from tests.kubernetes.apiserver.core.api import Ask
from tests.kubernetes.apiserver.server import SHIPPED

_PLANS = (workload.GROUP, "scaleplans")
_ASK = Ask(manager="kubectl")


class Told:
    """Carries out what the benchmark asks of the server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        #: When each plan was first said to be applied.
        self._applied: dict[str, float] = {}
        self._writes: dict[str, int] = {}
        self._pods = 0
        server.call(lambda: server.api.store.listen(self._hear))

    def _hear(self, change: Any) -> None:
        if change.resource == ("", "pods"):
            self._pods += change.old is None
        elif change.resource == _PLANS and change.old is not None:
            name = change.new.key[1]
            self._writes[name] = self._writes.get(name, 0) + 1
            if (change.new.obj.get("status") or {}).get("phase") == "Applied":
                self._applied.setdefault(name, time.monotonic())

    def plans(self, first: int, count: int) -> dict[str, Any]:
        """Create plans."""
        return self._create("scaleplans", [workload.plan(first + n) for n in range(count)])

    def jobs(self, count: int) -> dict[str, Any]:
        """Create jobs."""
        return self._create("elasticjobs", [workload.job(n) for n in range(count)])

    def state(self) -> dict[str, Any]:
        """What was reconciled so far, and by how many requests."""

        def read() -> dict[str, Any]:
            traffic = self._server.traffic
            return {
                "applied": len(self._applied),
                "pods": self._pods,
                "pod_requests": traffic.writes("pods"),
                "requests": traffic.writes(f"{workload.GROUP}/scaleplans")
                + traffic.writes(f"{workload.GROUP}/scaleplans/status"),
                "written_twice": sum(count > 1 for count in self._writes.values()),
                "most_in_flight": traffic.most_in_flight,
                "last": max(self._applied.values(), default=0.0),
            }

        return self._server.call(read)

    def first_after(self, at: float) -> dict[str, Any]:
        """When the first plan was applied after an instant."""
        return {"at": min((each for each in self._applied.values() if each > at), default=None)}

    def slow(self, seconds: float, times: int) -> dict[str, Any]:
        """Answer the next requests of operators late."""
        self._server.faults.slow(seconds, times=times)
        return {}

    def outage(self, seconds: float) -> dict[str, Any]:
        """Refuse connections for a while."""
        with self._server.outage():
            time.sleep(seconds)
        return {}

    def storm(self, times: int) -> dict[str, Any]:
        """Answer the next watches with 410, and end those that there are."""
        self._server.faults.answer(410, times=times, watches=True, agent="brain-scaler")
        self._server.expire()
        return {}

    def _create(self, plural: str, bodies: list[dict[str, Any]]) -> dict[str, Any]:
        server = self._server

        def work() -> None:
            kind = server.api.kinds.find(workload.GROUP, workload.VERSION, plural)
            assert kind is not None, f"the server has no {plural}"
            for body in bodies:
                server.api.create(kind, workload.NAMESPACE, body, _ASK)

        server.call(work)
        return {}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    server = TlsServer(parser.parse_args().directory)
    server.start()
    server.install(*sorted(SHIPPED.glob("*.yaml")))

    def namespace() -> None:
        kind = server.api.kinds.find("", "v1", "namespaces")
        assert kind is not None, "every server has namespaces"
        server.api.create(kind, "", {"metadata": {"name": workload.NAMESPACE}}, _ASK)

    server.call(namespace)
    told = Told(server)
    print(json.dumps({"url": server.url, "kubeconfig": str(server.kubeconfig)}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(getattr(told, asked.pop("do"))(**asked)), flush=True)


if __name__ == "__main__":
    main()
