"""A place for the contract of ``JobBackend``: pods on the emulator, under a fake kubelet."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count

from brain.types.job import JobId
from brain.views import DesiredJob
from scaler.kubernetes.kinds.documents import elastic_job
from scaler.kubernetes.operator.backend import KubernetesBackend
from scaler.kubernetes.operator.jobs import JOB as JOBS
from scaler.kubernetes.pods.manifest import AgentInjection
from scaler.kubernetes.pods.orders import Installation
from scaler.kubernetes.runtime import Manager, Object
from scaler.kubernetes.runtime.cluster import NAMESPACE, NODE, POD, Cluster, connect
from scaler.ports import document
from tests.kubernetes.clusters import MARK, here, real_kubeconfig
from tests.kubernetes.clusters import namespace as named
from tests.kubernetes.kubelet import FakeKubelet
from tests.kubernetes.real import Ground
from tests.kubernetes.scheduling import Scheduler

_NUMBERS = count()


class FromDocuments(KubernetesBackend):
    """Jobs have no objects but what their wishes say, in the place of what a person wrote."""

    objects: dict[JobId, Object]

    def start(
        self, wish: DesiredJob, replica: int, environment: Mapping[str, str], now: datetime
    ) -> None:
        made = elastic_job(replace(document(wish), image="digits:1", project="default"))
        for role in made["spec"]["replicaSpecs"].values():
            role["template"]["spec"] = here(role["template"]["spec"])
        self.objects[wish.job] = {
            **made,
            "metadata": {**made["metadata"], **self.objects[wish.job]["metadata"]},
        }
        super().start(wish, replica, environment, now)


@dataclass
class Machines:
    """The emulator with everything that makes pods run."""

    server: Ground
    kubelet: FakeKubelet


@contextmanager
def machines(server: Ground, *, cpu: str, memory: str) -> Iterator[Machines]:
    """One node of that size, and whoever runs pods there."""
    kubelet, scheduler = FakeKubelet(server), Scheduler(server)
    kubelet.add_nodes("here", cpu=cpu, memory=memory)
    try:
        yield Machines(server, kubelet)
    finally:
        scheduler.close()
        kubelet.close()


@contextmanager
def backend(machines: Machines, *jobs: JobId, now: datetime) -> Iterator[FromDocuments]:
    """A backend in a namespace of its own."""
    namespace = named(f"place-{next(_NUMBERS)}")
    cluster = Cluster(connect(kubeconfig=str(machines.server.kubeconfig)))
    cluster.create(NAMESPACE, {"metadata": {"name": namespace}})
    manager = Manager(cluster, namespaces=[namespace])
    made = FromDocuments(
        manager.cluster,
        pods=manager.store(POD),
        # A real cluster may have nodes of its own.
        nodes=manager.store(NODE, label_selector=MARK if real_kubeconfig() else ""),
        find=lambda job: made.objects.get(job),
        house=lambda: Installation(injection=AgentInjection(image="brain:1")),
        pool="local",
    )
    made.objects = {}
    for number, job in enumerate(jobs):
        container = {"name": "main", "image": "digits:1"}
        body = {
            "apiVersion": JOBS.api_version,
            "kind": JOBS.kind,
            "metadata": {"name": f"digits-{number}", "namespace": namespace},
            "spec": {
                "replicaSpecs": {"worker": {"template": {"spec": {"containers": [container]}}}}
            },
        }
        made.objects[job] = cluster.create(JOBS, body)
    manager.listen(POD, lambda change: made.changed(change, now))
    manager.start()
    assert manager.synced(60.0)
    try:
        yield made
    finally:
        made.close_down()
        manager.stop()
        machines.server.discard(namespace)
        cluster.close()
