"""An operator at work: a cluster with two nodes, a Brain in process, and a namespace of its own."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from brain import calls, cycle
from brain.errors import Conflict
from brain.types.job import JobState
from brain.types.record import Role
from brain.types.resources import PoolName, Resources
from scaler.desired import WishFile
from scaler.kubernetes.operator.jobs import JOB
from scaler.kubernetes.operator.operator import Operator
from scaler.kubernetes.operator.options import OperatorOptions
from scaler.kubernetes.operator.starting import find_out
from scaler.kubernetes.plans.plans import PLAN
from scaler.kubernetes.pods.identity import INDEX, replica_of
from scaler.kubernetes.pods.manifest import AgentInjection
from scaler.kubernetes.runtime import Cluster, ElectionTerms, connect
from scaler.kubernetes.runtime.cluster import EVENT, POD, Key, Unreachable
from scaler.kubernetes.runtime.cluster.transport import Stream, TransportAnswer, TransportRequest
from scaler.kubernetes.runtime.pace import Clock
from scaler.loop import Scaler
from scaler.pace import Pace
from tests.api.app import Api
from tests.builders import node
from tests.kubernetes import jobs
from tests.kubernetes.clusters import namespace as named
from tests.kubernetes.kubelet import FakeKubelet
from tests.kubernetes.real import Ground, ground
from tests.kubernetes.scheduling import Scheduler
from tests.patience import Patience

_NUMBERS = count()
Json = dict[str, Any]


class Line:
    """A connection to the API server that goes dead: its process was killed, or cut off."""

    def __init__(self, ground: Ground) -> None:
        self._whole = connect(kubeconfig=str(ground.kubeconfig))
        self.host = self._whole.host
        self.dead = False
        #: It goes dead at the pod after so many; None: it does not.
        self.pods_left: int | None = None
        self._counting = threading.Lock()

    def send(self, request: TransportRequest, *, seconds: float) -> TransportAnswer:
        """Send, while it lives."""
        if (request.method, request.path.rpartition("/")[2]) == ("POST", "pods"):
            with self._counting:
                self.dead = self.dead or self.pods_left == 0
                self.pods_left = self.pods_left and self.pods_left - 1
        self._living()
        return self._whole.send(request, seconds=seconds)

    def stream(
        self, request: TransportRequest, *, connect_seconds: float, silence_seconds: float
    ) -> Stream:
        """Watch, while it lives."""
        self._living()
        return self._whole.stream(
            request, connect_seconds=connect_seconds, silence_seconds=silence_seconds
        )

    def close(self) -> None:
        """Close what it goes over."""
        self._whole.close()

    def _living(self) -> None:
        if self.dead:
            raise Unreachable("nothing is heard of this process any more")


@dataclass
class Place:
    """One operator, its Brain, and a namespace of its own."""

    api: Api
    #: Its tests' own connection.
    cluster: Cluster
    operator: Operator
    namespace: str
    line: Line

    def apply(self, made: Json) -> Json:
        """Create or change an object, as kubectl does."""
        made["metadata"]["namespace"] = self.namespace
        kind = JOB if made["kind"] == "ElasticJob" else PLAN
        return self.cluster.apply(kind, made, owner="kubectl")

    def status(self, made: Json) -> Json:
        """What the object says now."""
        kind = JOB if made["kind"] == "ElasticJob" else PLAN
        found = self.cluster.get(kind, self.namespace, made["metadata"]["name"])
        status: Json = found.get("status") or {}
        return status

    def condition(self, made: Json, type: str) -> tuple[str, str, str] | None:
        """Status, reason and message of a condition."""
        for each in self.status(made).get("conditions") or ():
            if each["type"] == type:
                return each["status"], each.get("reason", ""), each.get("message", "")
        return None

    def says(self, made: Json, type: str, status: str, reason: str, part: str = "") -> None:
        """Wait for a condition, and for the Event that says the same where it is bad."""

        def held() -> bool:
            found = self.condition(made, type)
            return found is not None and found[:2] == (status, reason) and part in found[2]

        until(f"{type}={status} {reason} {part!r}", held, lambda: self.status(made))

    def told(self, reason: str, part: str) -> None:
        """Wait for an Event."""
        events = self.operator.manager.cluster

        def held() -> bool:
            found = events.list(EVENT, self.namespace).items
            return any(e["reason"] == reason and part in e["message"] for e in found)

        until(f"an Event {reason} with {part!r}", held)

    def pods(self) -> dict[str, Json]:
        """The pods of the job ``digits`` that have not ended, by index."""
        found = self.cluster.list(POD, self.namespace).items
        return {
            pod["metadata"]["labels"][INDEX]: pod
            for pod in found
            if replica_of(pod) is not None
            and (pod.get("status") or {}).get("phase") in ("Pending", "Running")
            and "deletionTimestamp" not in pod["metadata"]
        }

    def run(self) -> set[str]:
        """The indexes of those that run."""
        return {index for index, pod in self.pods().items() if pod["status"]["phase"] == "Running"}

    def look(self) -> None:
        """Let the operator ask Brain."""
        self.operator.brain.look()

    def looks_again_soon(self) -> bool:
        """Whether the operator looks at the job ``digits`` again after seconds, by itself."""
        try:
            found = self.operator.jobs.reconcile(Key(self.namespace, "digits"))
        except Conflict:  # the operator's own look wrote first
            return False
        return found.requeue_after_seconds == 5

    def job(self, made: Json) -> Any:
        """What Brain has of it."""
        with self.api.client() as client:
            return client.send(calls.job(made["metadata"]["uid"]))

    def running(self, made: Json) -> None:
        """Let Brain have started the job, so that it may change."""
        with self.api.stores.transaction() as tx:
            job = tx.jobs.get(made["metadata"]["uid"])
            now = self.api.now
            tx.jobs.put(job.moved(JobState.STARTING, "", now).moved(JobState.RUNNING, "", now))
        self.look()


def until(what: str, held: Callable[[], object], seen: Callable[[], object] = str) -> None:
    """Wait, as long as a busy machine may need."""
    patience = Patience(60)
    while not held():
        assert not patience.over, f"{what}: not within 60 s; {seen()}"
        time.sleep(0.02)


@dataclass
class Stage:
    """A cluster and whoever runs pods on it."""

    ground: Ground
    kubelet: FakeKubelet


@contextmanager
def staged(directory: Path) -> Iterator[Stage]:
    """Two nodes of 16 CPUs and 8 GPUs."""
    with ground(directory) as running:
        kubelet, scheduler = FakeKubelet(running), Scheduler(running)
        add_nodes(kubelet, "n0", "n1")
        try:
            yield Stage(running, kubelet)
        finally:
            scheduler.close()
            kubelet.close()


def add_nodes(kubelet: FakeKubelet, *names: str) -> None:
    """Register nodes of 16 CPUs and 8 GPUs."""
    more = {"tencent.com/vcuda-core": "800"}
    kubelet.add_nodes(*names, cpu="16", memory="64Gi", gpus=8, more=more)


@contextmanager
def operating(server: Ground, directory: Path, **options: Any) -> Iterator[Place]:
    """An operator in a new namespace; ``options``: what it is told otherwise."""
    namespace = named(f"team-{next(_NUMBERS)}")
    server.hands.create(("", "namespaces"), {"metadata": {"name": namespace}})
    if options.get("elect"):
        # Nobody's lease: so the first one need not wait for its end.
        metadata = {"namespace": namespace, "name": terms(namespace).name}
        free = {"metadata": metadata, "spec": {"holderIdentity": ""}}
        server.hands.create(("coordination.k8s.io", "leases"), free)
    place = placed(server, a_brain(directory), namespace, **options)
    try:
        yield place
    finally:
        retire(place)
        server.discard(namespace)


def a_brain(directory: Path) -> Api:
    """A Brain that knows the nodes, and no job."""
    directory.mkdir(exist_ok=True)
    api = Api(directory, now=datetime.now(UTC))
    api.add_node(cpus=64)
    with api.stores.transaction() as tx:
        room = Resources(cpu_millis=32_000, memory_bytes=2**37, gpus=16)
        tx.nodes.put(node("n0", pool="kubernetes", capacity=room, seen_at=api.now))
    return api


@contextmanager
def replaced(place: Place, server: Ground, directory: Path) -> Iterator[Place]:
    """Another operator in the same namespace, with a Brain that lost its database."""
    retire(place)
    anew = placed(server, a_brain(directory), place.namespace)
    try:
        yield anew
    finally:
        retire(anew)


def terms(namespace: str) -> ElectionTerms:
    """A leader that stands still for a few seconds stays one."""
    return ElectionTerms(
        namespace=namespace, lease_seconds=8.0, renew_seconds=6.0, retry_seconds=0.5
    )


def placed(
    server: Ground, api: Api, namespace: str, clock: Clock | None = None, **more: Any
) -> Place:
    """One more operator for a namespace, at work."""
    line = Line(server)
    given: dict[str, Any] = {
        "url": "http://brain",
        "token": "",
        "home": api.home,
        "namespaces": (namespace,),
        "own_namespace": namespace,
        "elect": False,
        "lease": terms(namespace),
        "injection": AgentInjection(image="brain:1"),
    }
    options = OperatorOptions(**(given | more))
    made = Operator(options, Cluster(line, clock=clock), api.client(Role.SCALER))
    made.know(find_out(made.manager.cluster, options))
    made.brain.look()
    made.manager.start()
    return Place(api, Cluster(connect(kubeconfig=str(server.kubeconfig))), made, namespace, line)


def retire(place: Place) -> None:
    """End an operator."""
    place.operator.manager.stop()
    place.operator.backend.close_down()
    place.cluster.close()
    place.line.close()


@contextmanager
def looping(place: Place) -> Iterator[None]:
    """The scaler's loop over the operator's backend, until the block ends."""
    pace = Pace(look=0.05, poll=0.2)

    async def run() -> None:
        async with place.api.aclient(Role.SCALER) as client:
            file = WishFile(place.api.home / "wishes.json")
            backend = place.operator.backend
            scaler = Scaler(
                client,
                backend,
                file,
                pool="kubernetes",
                clock=place.operator.now,
                pace=pace,
                spares=place.operator.spares,
                apart=True,
            )
            work.append((asyncio.get_running_loop(), asyncio.create_task(scaler.run())))
            with suppress(asyncio.CancelledError):
                await work[0][1]

    work: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = []
    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    until("the loop runs", lambda: work)
    try:
        yield
    finally:
        work[0][0].call_soon_threadsafe(work[0][1].cancel)
        thread.join(60)


@contextmanager
def living(place: Place, brain_ahead: timedelta = timedelta()) -> Iterator[None]:
    """The loop, and Brain's turns, as often as a test has patience for; Brain's clock is ahead."""
    done = threading.Event()
    pool = PoolName("kubernetes")

    def turns() -> None:
        while not done.wait(0.1):
            place.api.now = _now() + brain_ahead
            cycle.turn(place.api.stores, pool, place.api.settings, place.api.now)
            place.look()

    thread = threading.Thread(target=turns, name="turns", daemon=True)
    thread.start()
    try:
        with looping(place):
            yield
    finally:
        done.set()
        thread.join(60)


def _now() -> datetime:
    return datetime.now(UTC)


def plan(replicas: int, **metadata: Any) -> Json:
    return jobs.plan(
        {"ownerJob": "digits", "replicaResourceSpecs": {"worker": {"replicas": replicas}}},
        **metadata,
    )


def job(**worker: Any) -> Json:
    return jobs.job("brain-run", "t.py", resources={"cpu": "1"}, **worker)


def accepted(place: Place, **worker: Any) -> Json:
    """A job that Brain knows and that runs."""
    made = place.apply(job(**worker))
    place.says(made, "Accepted", "True", "Valid")
    until("Brain knows the job", lambda: place.operator.brain.view(made["metadata"]["uid"]))
    place.running(made)
    return made
