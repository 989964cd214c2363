"""The checks of ``brain doctor``; a finding states a fact and, if something is wrong, a remedy."""

import importlib.util
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from brain import calls
from brain.cli.connect import connect, pages, state_directory
from brain.cli.programs import command
from brain.client import BrainClient
from brain.errors import BrainError
from brain.extras import install
from brain.types.finding import Finding
from brain.typeset import cores

#: Free bytes below which writes of the database or a spool may soon fail.
LITTLE_SPACE_BYTES = 1 << 30
#: Clock offset above which the ages on screen are misleading.
LARGE_SKEW_SECONDS = 5.0


def examine() -> Iterator[Finding]:
    """Check the state directory, the machine, and the service."""
    home = state_directory()
    yield from _directory(home)
    yield from _collector(home)
    yield from _libraries()
    try:
        with connect() as client:
            yield from _service(client)
    except BrainError as error:
        yield Finding("bad", "service", str(error))


#: Programs that check a cluster: the operator's for rights, kinds and nodes; the collector's for
#: its sources.
_EXAMINERS = (
    ("scaler.kubernetes.doctor",),
    ("collectors.cli", "--kubernetes", "--check"),
)
#: Reviewing a right takes milliseconds, but a silent API server takes ten seconds for each request.
_EXAMINER_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterToCheck:
    """A cluster to check: its address, its namespaces, and the user whose rights are checked."""

    kubeconfig: str | None = None
    context: str | None = None
    namespaces: Sequence[str] = ()
    #: Namespace in which the operator runs.
    own: str = "brain"
    #: User whose rights are checked; None: the user of the kubeconfig.
    user: str | None = None
    prometheus: str | None = None


def examine_cluster(asked: ClusterToCheck) -> Iterator[Finding]:
    """Check a cluster with the programs that would run there."""
    common = [f"--namespace={each}" for each in asked.namespaces]
    common += [f"--kubeconfig={asked.kubeconfig}"] if asked.kubeconfig else []
    common += [f"--context={asked.context}"] if asked.context else []
    common += [f"--user={asked.user}"] if asked.user else []
    prometheus = [f"--prometheus={asked.prometheus}"] if asked.prometheus else []
    for examiner, more in zip(_EXAMINERS, ([f"--own={asked.own}"], prometheus), strict=True):
        yield from _examined([*examiner, *common, *more])


def _examined(words: Sequence[str]) -> Iterator[Finding]:
    module, *arguments = words
    try:
        done = subprocess.run(
            command(module, *arguments),
            capture_output=True,
            text=True,
            timeout=_EXAMINER_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        yield Finding(
            "bad",
            f"{module} did not end within {_EXAMINER_SECONDS:.0f} s",
            "check that this machine can reach the API server",
        )
        return
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    for line in lines:
        yield Finding(**json.loads(line))
    if not lines:
        said = (done.stderr.strip().splitlines() or ["it printed no error"])[-1]
        yield Finding("bad", f"{module} exited with code {done.returncode}", said)


def _directory(home: Path) -> Iterator[Finding]:
    if not home.exists():
        yield Finding("note", f"{home} does not exist", "`brain up` creates it")
        return
    mode = stat.S_IMODE(home.stat().st_mode)
    if mode & 0o066:
        yield Finding("bad", f"other users can read {home} (mode {mode:o})", f"chmod 700 {home}")
    if not os.access(home, os.W_OK):
        yield Finding("bad", f"{home} is not writable", "mount it writable or set BRAIN_HOME")
    free = shutil.disk_usage(home).free
    said = f"{free / 2**30:.1f} GiB free under {home}"
    yield (
        Finding("ok", said)
        if free > LITTLE_SPACE_BYTES
        else Finding("bad", said, "free some space, or move BRAIN_HOME to another disk")
    )


def _collector(home: Path) -> Iterator[Finding]:
    try:
        status = json.loads((home / "collector" / "status.json").read_text())
    except (OSError, ValueError):
        yield Finding(
            "note", "no collector has run on this machine", "the first job's agent starts one"
        )
        return
    lost = status.get("dropped", 0)
    said = f"the collector delivered {status.get('delivered', 0)} samples and dropped {lost}"
    error = status.get("last_error")
    yield Finding("bad" if error else "ok", said, str(error) if error else "")


def _libraries() -> Iterator[Finding]:
    wanted = {
        "torch": f"scripts that train with torch need torch: {install('torch')}",
        "psutil": f"host telemetry needs psutil: {install('host')}",
        "pynvml": f"GPU telemetry needs pynvml: {install('host')}",
    }
    for name, remedy in wanted.items():
        if importlib.util.find_spec(name) is None:
            yield Finding("note", f"{name} is not installed", remedy)
        else:
            yield Finding("ok", f"{name} is installed")


def _service(client: BrainClient) -> Iterator[Finding]:
    health = client.send(calls.health())
    size = f"{health.database_bytes / 2**20:.1f} MiB"
    yield Finding("ok", f"Brain {health.version} answers; {health.database}, {size}")
    yield Finding("ok", f"signed in as {health.who}, with the role {health.role}")
    for sentence in health.degraded:
        yield Finding("bad", "a part of the service is degraded", sentence)
    if abs(health.skew_seconds) > LARGE_SKEW_SECONDS:
        way = "behind" if health.skew_seconds > 0 else "ahead of"
        said = f"a sender's clock is {abs(health.skew_seconds):.1f} s {way} the service's clock"
        yield Finding(
            "note",
            said,
            "synchronize its clock with NTP; until then Brain corrects the times of its samples",
        )
    nodes = list(pages(client, lambda token: calls.nodes(page_token=token)))
    if not nodes:
        yield Finding("bad", "no node is registered", "start a scaler: `brain up` does")
    for node in nodes:
        said = f"node {node.name}: {cores(node.capacity.cpu_millis)}, {node.accelerator}"
        yield (
            Finding("ok", said)
            if node.ready
            else Finding("bad", f"node {node.name} is silent", "start the node's scaler")
        )
