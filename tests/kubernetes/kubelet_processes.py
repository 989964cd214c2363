"""A kubelet that runs each pod's containers as processes of this machine.

A pod gets an address of its own on the loopback (``127.x.y.z``), a directory for its volumes, and
its containers' commands, environment and grace. There is no image and no mount: wherever a command,
an argument or a variable names a mount path, it names the volume's directory instead; what a
container would find in its image it finds on this machine's ``PATH``.
"""

import contextlib
import math
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launcher.workers.processes import reaper
from tests.kubernetes import kubelet_status
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.core.store import Key
from tests.kubernetes.apiserver.hands import NODES, PODS, Heard, key_of
from tests.kubernetes.kubelet import Handed, node, set_ready
from tests.kubernetes.kubelet_volumes import Mounts, environment, prepared, refresh

#: Where a container leaves its last words; which the variables that name it are told.
_LAST_WORDS = "/dev/termination-log"
_POLL_SECONDS = 0.02
#: How long a container that ended waits before it runs again.
_RESTART_SECONDS = 0.5


@dataclass(slots=True)
class _Run:
    """One pod that runs here."""

    key: Key
    uid: str
    address: str
    directory: Path
    #: Set when the pod is to end, after so many seconds of grace.
    ending: threading.Event = field(default_factory=threading.Event)
    grace_seconds: float = 30.0
    #: Set when the node is lost: processes die and nobody is told.
    lost: bool = False
    #: True from the pause of its node: its kubelet, which was paused too, ends nothing any more.
    paused: bool = False
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    thread: threading.Thread | None = None


class ProcessKubelet:
    """The kubelet of every node of a cluster; use it as a context manager.

    ``environ``: what every container finds as if its image set it. ``directory``: where volumes
    and logs go (``<directory>/<namespace>/<pod>-<uid>/``). ``host_address``: what pods of the
    host's network get.
    """

    def __init__(
        self,
        cluster: Handed,
        directory: Path,
        *,
        environ: Mapping[str, str] | None = None,
        host_address: str = "127.0.0.1",
    ) -> None:
        self._host_address = host_address
        self._hands = cluster.hands
        self._directory = directory
        self._environ = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(directory),
            "LANG": "C.UTF-8",
            **(environ or {}),
        }
        self._runs: dict[Key, _Run] = {}
        self._lock = threading.Lock()
        self._next_address = 0
        self._closing = False
        self._hands.serve_logs(self._logs)
        self._unlisten = self._hands.listen(self._hear)

    def __enter__(self) -> "ProcessKubelet":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add_nodes(self, *names: str, **what: Any) -> None:
        """Register nodes; ``what``: as for ``tests.kubernetes.kubelet.node``."""
        for name in names:
            self._hands.create(NODES, node(name, **what))

    def log(self, name: str, namespace: str = "default", container: str = "") -> str:
        """Return what a pod's container wrote."""
        return (self._logs(namespace, name, container) or b"").decode(errors="replace")

    def processes(self, name: str, namespace: str = "default") -> dict[str, int]:
        """Return container -> process id of what runs in a pod."""
        run = self._runs.get((namespace, name))
        found = dict(run.processes) if run else {}
        return {c: p.pid for c, p in found.items() if p.poll() is None}

    def kill(self, name: str, namespace: str = "default", number: int = signal.SIGKILL) -> None:
        """Send a signal to every process of a pod, as the kernel might."""
        run = self._runs[namespace, name]
        for process in tuple(run.processes.values()):
            _signal(process, number)

    def pause(self, name: str, namespace: str = "default") -> None:
        """Pause the machine under a pod, its kubelet included."""
        run = self._runs[namespace, name]
        run.paused = True
        for process in tuple(run.processes.values()):
            _signal_all(process, signal.SIGSTOP)

    def resume(self, name: str, namespace: str = "default") -> None:
        """Let a paused pod's processes go on; its kubelet stays away, and ends none of them."""
        for process in tuple(self._runs[namespace, name].processes.values()):
            _signal_all(process, signal.SIGCONT)

    def lose_node(self, name: str) -> None:
        """Kill everything on a node and never tell of it."""
        set_ready(self._hands, name, False)
        for key, run in tuple(self._runs.items()):
            pod = self._hands.find(PODS, key)
            if pod is not None and pod["spec"].get("nodeName") == name:
                run.lost = True
                run.ending.set()
                for process in tuple(run.processes.values()):
                    _signal(process, signal.SIGKILL)

    def close(self) -> None:
        """End every process that was started, at once."""
        self._closing = True
        self._unlisten()
        with self._lock:
            runs = list(self._runs.values())
        for run in runs:
            run.lost = True
            run.ending.set()
            for process in tuple(run.processes.values()):
                _signal(process, signal.SIGKILL)
        for run in runs:
            if run.thread is not None:
                run.thread.join(60)

    # On the hands' thread.

    def _hear(self, heard: Heard) -> None:
        if heard.resource != PODS:
            return
        run = self._runs.get(key_of(heard.obj))
        if not heard.gone:
            self._look(heard.obj)
        elif run is not None and run.uid == heard.obj["metadata"]["uid"]:
            run.grace_seconds = 0.0
            run.ending.set()

    def _look(self, pod: Json) -> None:
        key, metadata = key_of(pod), pod["metadata"]
        run = self._runs.get(key)
        if not pod["spec"].get("nodeName") or self._closing:
            return
        here = run is not None and run.uid == metadata["uid"]
        if here and run is not None:
            refresh(pod, run.directory)
        if "deletionTimestamp" in metadata:
            if here and run is not None:
                run.grace_seconds = metadata.get("deletionGracePeriodSeconds") or 0
                run.ending.set()
            elif not here:
                self._hands.soon(lambda: self._remove(key))
        elif not here and (pod.get("status") or {}).get("phase") == "Pending":
            self._launch(pod)
        elif here and kubelet_status.unresized(pod):
            self._hands.soon(lambda: self._hands.write_status(PODS, key, kubelet_status.resized))

    def _remove(self, key: Key) -> None:
        """Confirm that a pod is gone."""
        if self._hands.find(PODS, key) is not None:
            self._hands.delete(PODS, key, grace_seconds=0)

    def _launch(self, pod: Json) -> None:
        self._next_address += 1
        number = self._next_address
        host = pod["spec"].get("hostNetwork")
        # Kubelets of tests that run at the same time must not share addresses.
        high, low = divmod(os.getpid(), 250)
        network = f"127.{low + 1}.{(high + number // 250) % 250 + 1}"
        address = self._host_address if host else f"{network}.{number % 250 + 2}"
        namespace, name = key_of(pod)
        uid = pod["metadata"]["uid"]
        directory = self._directory / namespace / f"{name}-{uid[:8]}"
        run = _Run(key_of(pod), uid, address, directory)
        run.thread = threading.Thread(target=self._play, args=(run, pod), daemon=True)
        self._runs[run.key] = run
        run.thread.start()

    def _logs(self, namespace: str, name: str, container: str) -> bytes | None:
        run = self._runs.get((namespace, name))
        files = sorted(run.directory.glob(f"{container or '*'}.log")) if run else []
        return b"".join(file.read_bytes() for file in files) if files else None

    # On a pod's own thread.

    def _play(self, run: _Run, pod: Json) -> None:
        """Run a pod from its volumes to its end."""
        run.directory.mkdir(parents=True, exist_ok=True)
        try:
            codes = self._played(run, pod)
        except LookupError as error:
            self._cannot_start(run, str(error))
            return
        finally:
            for process in run.processes.values():
                _signal(process, signal.SIGKILL)
                process.wait()
        if run.lost:
            return
        now = self._hands.now()
        words = run.directory / "termination-log"
        said = words.read_text(errors="replace") if words.exists() else ""
        self._status(run, lambda pod: kubelet_status.ended(pod, now, codes, message=said))
        self._hands.call(lambda: self._confirm(run))

    def _played(self, run: _Run, pod: Json) -> dict[str, int]:
        """Run a pod; returns container -> exit code. Raises ``LookupError`` for what it lacks."""
        mounts = prepared(self._read, pod, run.directory)
        self._hands.call(lambda: self._refresh(run))
        codes = self._initialise(run, pod, mounts)
        return self._main(run, pod, mounts) if codes is None else codes

    def _refresh(self, run: _Run) -> None:
        """Write what changed of a pod before its volumes were there."""
        pod = self._hands.find(PODS, run.key)
        if pod is not None and pod["metadata"]["uid"] == run.uid:
            refresh(pod, run.directory)

    def _confirm(self, run: _Run) -> None:
        """Let a deleted pod go once its processes have ended."""
        pod = self._hands.find(PODS, run.key)
        if pod is not None and "deletionTimestamp" in pod["metadata"]:
            self._remove(run.key)

    def _read(self, plural: str, namespace: str, name: str) -> Json | None:
        return self._hands.find(("", plural), (namespace, name))

    def _cannot_start(self, run: _Run, why: str) -> None:
        def waiting(pod: Json) -> Json:
            state = {"waiting": {"reason": "CreateContainerConfigError", "message": why}}
            statuses = [
                kubelet_status.container_status(container, state)
                for container in pod["spec"]["containers"]
            ]
            return {**pod["status"], "containerStatuses": statuses}

        self._status(run, waiting)
        run.ending.wait()
        if not run.lost:
            self._hands.call(lambda: self._confirm(run))

    def _status(self, run: _Run, status: Callable[[Json], Json]) -> None:
        def write() -> None:
            pod = self._hands.find(PODS, run.key)
            if pod is not None and pod["metadata"]["uid"] == run.uid:
                self._hands.write_status(PODS, run.key, status)

        self._hands.call(write)

    def _initialise(self, run: _Run, pod: Json, mounts: Mounts) -> dict[str, int] | None:
        """Run the init containers; returns the pod's codes if one of them ended it."""
        everything = {container["name"]: 137 for container in pod["spec"]["containers"]}
        for container in pod["spec"].get("initContainers") or ():
            process = self._start(run, pod, container, mounts)
            while process.poll() is None and not run.ending.is_set():
                time.sleep(_POLL_SECONDS)
            if run.ending.is_set():
                self._stop(run)
                return everything
            if code := process.returncode:
                return {name: _code(code) for name in everything}
            del run.processes[container["name"]]
        return None

    def _main(self, run: _Run, pod: Json, mounts: Mounts) -> dict[str, int]:
        containers = pod["spec"]["containers"]
        for container in containers:
            self._start(run, pod, container, mounts)
        now = self._hands.now()
        address = run.address
        self._status(run, lambda pod: kubelet_status.running(pod, now, address, "127.0.0.1"))
        policy = pod["spec"].get("restartPolicy", "Always")
        while not run.ending.is_set():
            ended = {n: p.returncode for n, p in run.processes.items() if p.poll() is not None}
            again = [n for n, code in ended.items() if _restarts(policy, code)]
            for name in again:
                self._again(run, pod, name, mounts, _code(ended[name]))
            if not again and len(ended) == len(containers):
                break
            run.ending.wait(_POLL_SECONDS)
        if run.ending.is_set():
            self._stop(run)
        return {name: _code(process.returncode) for name, process in run.processes.items()}

    def _again(self, run: _Run, pod: Json, name: str, mounts: Mounts, code: int) -> None:
        container = next(one for one in pod["spec"]["containers"] if one["name"] == name)
        now = self._hands.now()
        self._status(run, lambda pod: kubelet_status.restarted(pod, now, code))
        if not run.ending.wait(_RESTART_SECONDS):
            self._start(run, pod, container, mounts)

    def _start(
        self, run: _Run, pod: Json, container: Json, mounts: Mounts
    ) -> "subprocess.Popen[bytes]":
        """Start one container's process, in a session of its own."""
        status = {**pod, "status": {**pod.get("status", {}), "podIP": run.address}}
        environ = environment(self._read, status, container, self._environ)
        own = mounts.of(container)
        last_words = str(run.directory / "termination-log")
        environ = {
            name: own.told(value).replace(_LAST_WORDS, last_words)
            for name, value in environ.items()
        }
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        command = [own.told(_expanded(word, environ)) for word in words]
        folder = Path(own.told(container.get("workingDir") or str(run.directory)))
        log = run.directory / f"{container['name']}.log"
        with log.open("ab") as out:
            try:
                process = subprocess.Popen(
                    command or ["/bin/true"],
                    env=environ,
                    cwd=folder if folder.is_dir() else run.directory,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                out.write(f"cannot start: {error}\n".encode())
                process = subprocess.Popen(["/bin/sh", "-c", "exit 127"], start_new_session=True)
        run.processes[container["name"]] = process
        return process

    def _stop(self, run: _Run) -> None:
        """End a pod's processes: SIGTERM, and SIGKILL after its grace."""
        for process in () if run.paused else run.processes.values():
            _signal(process, signal.SIGTERM)
        until = math.inf if run.paused else time.monotonic() + run.grace_seconds
        while any(process.poll() is None for process in run.processes.values()):
            at_once = run.grace_seconds == 0 and not run.paused
            if time.monotonic() > until or run.lost or at_once:
                for process in run.processes.values():
                    _signal(process, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)


def _restarts(policy: str, code: int) -> bool:
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def _code(code: int) -> int:
    """Return an exit code as a container runtime tells it."""
    return 128 - code if code < 0 else code


def _expanded(word: str, environ: Mapping[str, str]) -> str:
    """Return a word with ``$(NAME)`` replaced."""
    for name, value in environ.items():
        word = word.replace(f"$({name})", value)
    return word


def _signal(process: "subprocess.Popen[bytes]", number: int) -> None:
    """Signal a container's whole session; its members may outlive the first process."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _signal_all(process: "subprocess.Popen[bytes]", number: int) -> None:
    """Signal a container's first process and its descendants, of which some may come meanwhile."""
    signalled: set[int] = set()
    while more := reaper.members({process.pid}, set()).keys() - signalled:
        for pid in more:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        signalled |= more


@contextlib.contextmanager
def process_kubelet(cluster: Handed, directory: Path, **more: Any) -> Iterator[ProcessKubelet]:
    """Run a kubelet in a directory that is removed with it."""
    kubelet = ProcessKubelet(cluster, directory, **more)
    try:
        yield kubelet
    finally:
        kubelet.close()
        shutil.rmtree(directory, ignore_errors=True)
