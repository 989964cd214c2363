"""The article's job, from ``kubectl apply`` to its end, with everything killed once on the way."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from deploy.gotemplate import Chart
from deploy.render import CHART
from launcher.workers.processes.process import free_port
from tests.guard import guarded
from tests.kubernetes import jobs
from tests.kubernetes.clusters import namespace
from tests.kubernetes.kubelet_processes import ProcessKubelet, process_kubelet
from tests.kubernetes.real import Ground, ground
from tests.kubernetes.scheduling import Scheduler
from tests.patience import Patience

pytestmark = pytest.mark.slow

GROUP = "elastic.iml.github.io"
NAMESPACE, NAME = namespace("dlrover"), "torch-mnist-single-job-testing-1"
SCRIPT = Path(__file__).parents[1] / "scripts" / "digits_until.py"
#: No stage takes so long on a machine that is alone; on a busy one it may.
SECONDS = 300.0
#: Exit code of an operator that lost its lease.
DEPOSED = 75
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
FAST: Mapping[str, object] = {
    "tick_seconds": 0.3,
    "dwell_seconds": 1,
    "lease_seconds": 3,
    "patience_seconds": 30,
    "verify_seconds": 2,
    "restart_seconds": 2,
    "stale_seconds": 60,
}
#: Whose rights the operator has: those of the chart, for one namespace.
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:brain-scaler"
Json = dict[str, Any]


@dataclass
class Cluster:
    """A cluster, its kubelet, and the two programs beside it."""

    server: Ground
    kubelet: ProcessKubelet
    home: Path
    port: int
    brain: subprocess.Popen[bytes] | None = None
    operator: subprocess.Popen[bytes] | None = None

    def start_brain(self) -> None:
        """Start the service where it was before; pods know no other place."""
        told = [f"--{key.replace('_', '-')}={value}" for key, value in FAST.items()]
        self.brain = self._start(
            "brain", "brain.service", f"--home={self.home}", f"--port={self.port}", *told
        )
        self.until("Brain answers", lambda: self._answers())

    def start_operator(self, *more: str) -> None:
        """Start an operator; one that led before may have to be waited for."""
        self.told = more or self.told
        self.operator = self._start(
            "operator",
            "scaler.cli",
            "--kubernetes",
            f"--kubeconfig={self.server.kubeconfig_for(ACCOUNT)}",
            f"--brain={self.address or f'http://127.0.0.1:{self.port}'}",
            f"--home={self.home}",
            f"--namespace={NAMESPACE}",
            f"--own-namespace={NAMESPACE}",
            f"--agent-python={sys.executable}",
            "--mode=approve",
            "--lease-seconds=4",
            "--poll-seconds=0.5",
            *self.told,
        )

    def take_submissions(self, *objects: Json) -> None:
        """Start Brain and an operator that takes submissions to one namespace."""
        self.start_brain()
        self.server.hands.create(("", "namespaces"), {"metadata": {"name": NAMESPACE}})
        for obj in (*rights(), *objects):
            self.create(obj)
        self.start_operator(f"--submit-to={NAMESPACE}")

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """What a person at a command line gets who knows the service alone."""
        return subprocess.run(
            [sys.executable, "-m", "brain.cli", *words],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    @property
    def environ(self) -> dict[str, str]:
        """The environment of that person."""
        known = {"BRAIN_HOME": str(self.home), "BRAIN_PROJECT": NAMESPACE}
        return {**os.environ, **known, "BRAIN_TOKEN": ""}

    def create(self, obj: Json) -> None:
        """Create an object of any kind that the server knows, as an administrator."""
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(obj))

    def says(self, *words: str) -> str:
        """The output of a command that must succeed."""
        done = self.command(*words)
        assert done.returncode == 0, f"brain {' '.join(words)}: {done.stderr}\n{self.logs()}"
        return done.stdout

    def kubectl(self, *words: str, stdin: str = "") -> str:
        """What kubectl prints; it must succeed."""
        done = subprocess.run(
            [
                "kubectl",
                f"--kubeconfig={self.server.kubeconfig}",
                f"--namespace={NAMESPACE}",
                *words,
            ],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def job(self) -> Json:
        """The ElasticJob; its status may be empty."""
        found = self.server.objects("elasticjobs", GROUP, NAMESPACE)
        return found[0] if found else {}

    def status(self) -> Json:
        """What it says of the job."""
        found: Json = self.job().get("status") or {}
        return found

    def plans(self) -> list[Json]:
        """All ScalePlans."""
        return self.server.objects("scaleplans", GROUP, NAMESPACE)

    def pods(self) -> dict[str, str]:
        """uid by name of the pods that run."""
        found = self.server.objects("pods", "", NAMESPACE)
        return {
            pod["metadata"]["name"].rpartition("-edljob-")[2]: pod["metadata"]["uid"]
            for pod in found
            if (pod.get("status") or {}).get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        }

    def trains(self, replicas: int, *, after: int = 0) -> bool:
        """Whether a world of so many replicas, later than ``after``, steps, as the object says."""
        status = self.status()
        later = status.get("worldEpoch", 0) > after
        found = (status.get("phase"), status.get("readyReplicas"))
        return later and found == ("Running", replicas)

    @property
    def epoch(self) -> int:
        """That of the world, as the object says."""
        found: int = self.status()["worldEpoch"]
        return found

    def until(self, stage: str, held: Callable[[], object]) -> None:
        """Wait for a stage; fail with everything that is known."""
        patience = Patience(SECONDS)
        while not held():
            self._supervise(stage)
            assert not patience.over, f"{stage}: not within {SECONDS} s\n{self.logs()}"
            time.sleep(0.05)
        print(f"{time.monotonic() - self.began:6.1f} s  {stage}")

    def _supervise(self, stage: str) -> None:
        """As Kubernetes does: who lost its lease on a busy machine is started again."""
        assert self.brain is None or self.brain.poll() is None, f"{stage}: {self.logs()}"
        if self.operator is not None and self.operator.poll() is not None:
            assert self.operator.returncode == DEPOSED, f"{stage}: {self.logs()}"
            self.start_operator()

    def logs(self) -> str:
        """The ends of all logs, and the objects."""
        files = [*self.home.glob("*.log"), *self.home.parent.glob("pods/**/*.log")]
        said = [
            f"--- {file}\n" + "\n".join(file.read_text(errors="replace").splitlines()[-25:])
            for file in sorted(files)
        ]
        status = json.dumps([self.status(), *(p.get("status") for p in self.plans())], indent=1)
        return "\n".join([*said, status])

    began = 0.0
    #: What the operator takes for Brain; None: the one that is started here.
    address: str | None = None
    #: More words for the operator, whenever it is started.
    told: tuple[str, ...] = ()

    def _answers(self) -> bool:
        try:
            return httpx2.get(f"http://127.0.0.1:{self.port}/livez", timeout=5).status_code == 200
        except httpx2.HTTPError:
            return False

    def _start(self, name: str, module: str, *words: str) -> "subprocess.Popen[bytes]":
        with (self.home / f"{name}.log").open("ab") as out:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", module, *words],
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.home,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )


@contextmanager
def cluster(directory: Path, **kubelet_terms: Any) -> Iterator[Cluster]:
    """A cluster with two nodes of ours, with Brain and an operator beside it; nothing that names
    ``directory`` outlives it, or this process. ``kubelet_terms``: as for ``ProcessKubelet``."""
    home = directory / "home"
    home.mkdir(mode=0o700)
    with ExitStack() as stack:
        stack.enter_context(guarded(directory))
        server = stack.enter_context(ground(directory))
        # What pods learn of their imports outlives them, as on a volume: a host knows it already.
        environ = {"OMP_NUM_THREADS": "1", "PYTHONPATH": "", "XDG_CACHE_HOME": str(CACHE)}
        kubelet = stack.enter_context(
            process_kubelet(server, directory / "pods", environ=environ, **kubelet_terms)
        )
        scheduler = Scheduler(server)
        stack.callback(scheduler.close)
        gpus = {"tencent.com/vcuda-core": "800"}
        kubelet.add_nodes("n0", "n1", cpu="32", memory="64Gi", more=gpus)
        made = Cluster(server, kubelet, home, free_port("127.0.0.1"))
        made.began = time.monotonic()
        try:
            yield made
        finally:
            for program in (made.operator, made.brain):
                if program is not None and program.poll() is None:
                    program.kill()
                    program.wait()


def article(directory: Path) -> Json:
    """The article's YAML; only the training script is another one."""
    made = jobs.seed()
    container = made["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    launcher, _, _ = container["command"][2].partition("examples/pytorch")
    checkpoint = directory / "digits.pt"
    container["command"][2] = (
        f"{launcher}{SCRIPT} {directory / 'end'} --batch 64 --save-every 5 "
        f"--checkpoint {checkpoint}"
    )
    return made


def rights() -> list[Json]:
    """Account and roles as an installation in the job's namespace gets them."""
    objects = Chart(CHART).render({"namespaces": [NAMESPACE]}, namespace=NAMESPACE)
    kinds = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    return [obj for obj in objects if obj["kind"] in kinds]


def scale_plan(replicas: int) -> Json:
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "ScalePlan",
        "metadata": {"name": "smaller", "namespace": NAMESPACE},
        "spec": {
            "ownerJob": NAME,
            "replicaResourceSpecs": {"worker": {"replicas": replicas}},
        },
    }


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
@pytest.mark.timeout(900)
def test_the_articles_job_trains_through_every_loss_and_ends_right(tmp_path: Path) -> None:
    with cluster(tmp_path) as it:
        it.start_brain()
        it.kubectl("create", "namespace", NAMESPACE)
        it.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(rights()))
        it.start_operator()

        it.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(article(tmp_path)))
        it.until("five replicas train", lambda: it.trains(5))

        # Which is surely a member, and mostly the one that coordinates.
        before, epoch = it.pods(), it.epoch
        first = min(before, key=lambda name: int(name.rpartition("-")[2]))
        it.kubectl("delete", "pod", f"{NAME}-edljob-{first}", "--wait=false")
        it.until("another takes the place of the first pod", lambda: it.pods().keys() - before)
        it.until("five replicas train again", lambda: it.trains(5, after=epoch))

        before = it.pods()
        assert it.operator is not None
        assert it.brain is not None
        it.operator.send_signal(signal.SIGKILL)
        it.operator.wait()
        it.brain.send_signal(signal.SIGKILL)
        it.brain.wait()
        it.operator = it.brain = None
        it.start_brain()
        it.start_operator()

        it.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(scale_plan(3)))
        it.until("the plan is taken", lambda: _phase(it, "smaller") not in ("gone", "None"))
        # Nobody was started anew because operator and Brain were away.
        assert it.pods() == before
        it.until(
            "the plan resizes the job", lambda: it.trains(3, after=epoch) and len(it.pods()) == 3
        )
        assert it.pods().items() <= before.items()
        it.until("the plan is verified", lambda: _phase(it, "smaller") == "Verified")

        (tmp_path / "end").touch()
        it.until("the job has succeeded", lambda: it.status().get("phase") == "Succeeded")
        it.until("its pods have ended", lambda: not it.pods())
        assert "Complete" in it.kubectl("get", "elasticjob", NAME, "-o", "yaml")

        it.kubectl("delete", "elasticjob", NAME)
        if not it.server.collects:
            return
        left = ("pods", "secrets")
        it.until("nothing is left", lambda: not any(_named(it, kind) for kind in left))
        it.until("nor any plan", lambda: not it.plans())


def _phase(it: Cluster, plan: str) -> str:
    found = [each for each in it.plans() if each["metadata"]["name"] == plan]
    return str((found[0].get("status") or {}).get("phase")) if found else "gone"


def _named(it: Cluster, plural: str) -> list[Json]:
    return [
        each
        for each in it.server.objects(plural, "", NAMESPACE)
        if each["metadata"]["name"].startswith(NAME)
    ]
