"""The operator of the benchmark on our controller runtime."""

import argparse
import gc
import signal
import threading

from benchmarks.kubernetes import workload
from scaler.kubernetes.runtime import (
    ElectionTerms,
    Key,
    Kind,
    Manager,
    Result,
    connect,
    meant,
    write_status,
)
from scaler.kubernetes.runtime.cluster import POD, ClientLimits, Cluster, controller_of

PLAN = Kind(workload.GROUP, workload.VERSION, "scaleplans", "ScalePlan")
JOB = Kind(workload.GROUP, workload.VERSION, "elasticjobs", "ElasticJob")


def plans(manager: Manager, workers: int) -> None:
    """Have the status of every plan written."""
    store = manager.store(PLAN)

    def reconcile(key: Key) -> Result:
        obj = store.get(key)
        if obj is not None:
            answer = write_status(manager.cluster, PLAN, obj, workload.status(obj))
            if answer is not None:
                store.learn(answer)
        return Result()

    manager.control("plans", PLAN, reconcile, workers=workers, when=meant)


def jobs(manager: Manager, workers: int) -> None:
    """Have the pods of every job exist."""
    store = manager.store(JOB)
    found = manager.store(POD, indexes={"job": lambda pod: _job(pod)})

    def reconcile(key: Key) -> Result:
        obj = store.get(key)
        if obj is not None:
            there = {pod["metadata"]["name"] for pod in found.by("job", str(key))}
            for pod in workload.pods(obj):
                if pod["metadata"]["name"] not in there:
                    found.learn(manager.cluster.apply(POD, pod))
        return Result()

    manager.control("jobs", JOB, reconcile, workers=workers, owns=[POD], when=meant)


def _job(pod: object) -> list[str]:
    owner = controller_of(pod, JOB)  # type: ignore[arg-type]
    return [str(owner)] if owner else []


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("plans", "jobs"))
    parser.add_argument("--in-flight", type=int, default=8)
    parser.add_argument("--lease", action="store_true")
    options = parser.parse_args()
    transport = connect()
    cluster = Cluster(transport, ClientLimits(in_flight=options.in_flight))
    terms = ElectionTerms(namespace=workload.NAMESPACE) if options.lease else None
    manager = Manager(cluster, terms=terms, namespaces=[workload.NAMESPACE])
    {"plans": plans, "jobs": jobs}[options.what](manager, options.in_flight)
    # As our operator does.
    gc.freeze()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    manager.start()
    stop.wait()
    manager.stop()


if __name__ == "__main__":
    main()
