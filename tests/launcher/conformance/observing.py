"""Run one case with a launcher and write down everything that came of it, made stable."""

import contextlib
import hashlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.launcher.conformance.cases import SCRIPTS, Case

REPOSITORY = Path(__file__).parents[3]
#: Differ from run to run, or (the machine's name) from machine to machine.
UNSTABLE = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RUN_ID", "HOME")
#: More lines than this are kept as a number and a digest.
_MANY_LINES = 200
#: A script's upload takes 1 s; after so long nobody writes it any more.
_UPLOAD_SECONDS = 10
#: What stands in reports, error files and paths and is new in every run.
_PASSING = (
    (r"\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d", "<time>"),
    (r"(?<=host      : ).*", "<host>"),
    (r"(?i)(?<=pid[: ])( ?)\d+", r"\1<pid>"),
    (r'(?<="timestamp": )"?[0-9.]+"?', "<time>"),
    (r"0x[0-9a-f]{6,}", "<address>"),
    (r"<work>/[^/]+/attempt", "<work>/<run>/attempt"),
)


def observe(launcher: Sequence[str], case: Case, deadline_seconds: float = 100) -> dict[str, Any]:
    """Run a case with ``launcher`` and return what its workers saw and left."""
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory() as seen:
        words = {"work": work, "port": str(_free_port()), "python": f"{sys.prefix}/bin/python"}
        words["installed"] = str(Path(__file__).parent / "site-packages")
        if case.again:
            _teach(launcher, case, seen, words, deadline_seconds)
        for name in case.copies:
            copied = Path(work, name)
            copied.write_bytes((SCRIPTS / name).read_bytes())
        running = [_start(launcher, case, case.arguments, seen, words)]
        if case.in_turn:
            _wait_for_listener(int(words["port"]), deadline_seconds)
        if case.beside:
            running.append(_start(launcher, case, case.beside, seen, words))
        outputs = _follow(case, running, Path(seen), deadline_seconds)
        if case.left:
            _wait_for_upload(Path(work, case.left))
        stable = _Stable(work, seen, words["port"])
        workers = {path.stem: json.loads(path.read_text()) for path in Path(seen).glob("*.json")}
        out = b"".join(each[0] or b"" for each in outputs)
        err = "\n".join(each[1].decode(errors="backslashreplace") for each in outputs)
        return {
            "exit_codes": [each.returncode for each in running],
            "workers": {rank: stable.worker(workers[rank]) for rank in sorted(workers)},
            "out": _out(stable, case, out),
            "err": sorted(stable(line) for line in err.split("\n") if "err " in line),
            "files": _files(stable, Path(work), case.copies),
            "report": _report(stable, err),
            "named": {word: word in err + out.decode(errors="replace") for word in case.names},
        }


def _teach(
    launcher: Sequence[str], case: Case, seen: str, words: dict[str, str], seconds: float
) -> None:
    """Run a case with a launcher that remembers libraries until it has tried them."""
    if "--preload=none" in launcher or "launcher.cli" not in launcher:
        return
    lingering = replace(case, environment={**case.environment, "LINGER": "1"})
    before = _start(launcher, lingering, case.arguments, seen, words)
    verdicts, end = Path(seen, ".cache", "elastic-brain"), time.monotonic() + seconds
    libraries = [each.stem for each in Path(words["installed"]).iterdir()]
    found = ""
    while not any(f'"{library}"' in found for library in libraries):
        assert before.poll() is None, before.communicate()
        assert time.monotonic() < end, libraries
        time.sleep(0.1)
        found = "".join(each.read_text() for each in verdicts.glob("libraries-*.json"))
    before.terminate()
    before.communicate(timeout=seconds)


_HEARD = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


def _start(
    launcher: Sequence[str],
    case: Case,
    arguments: Sequence[str],
    seen: str,
    words: dict[str, str],
) -> "subprocess.Popen[bytes]":
    def filled(said: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda m: words.get(m[1], m[0]), said)

    given = {
        "PATH": f"{os.path.dirname(sys.executable)}:/usr/bin:/bin",
        "HOME": seen,
        "LANG": "C.UTF-8",
        # However this process was called, its workers get one name.
        "PYTHON": words["python"],
        "SEEN": seen,
        # Where a machine has it in site-packages it is no business of a launcher.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.Popen(
        [*launcher, *map(filled, arguments)],
        env=given | {name: filled(value) for name, value in case.environment.items()},
        cwd=SCRIPTS,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: _settle(case),
    )


def _settle(case: Case) -> None:
    """Set a launcher's signals and streams, before it starts."""
    # Who runs tests in the background may ignore some, and launchers would inherit that.
    for each in (*_HEARD, signal.SIGCHLD):
        signal.signal(each, signal.SIG_IGN if each.name in case.ignored else signal.SIG_DFL)
    for fd in case.closed:
        os.close(fd)


def _follow(
    case: Case, running: "list[subprocess.Popen[bytes]]", seen: Path, seconds: float
) -> list[tuple[bytes, bytes]]:
    """Feed, signal and wait for the launchers; their outputs."""
    read: list[tuple[bytes, bytes]] = [(b"", b"")] * len(running)

    def communicate(at: int) -> None:
        read[at] = running[at].communicate(case.stdin, timeout=seconds)

    if case.closes:
        for each in running:
            assert each.stdout is not None
            each.stdout.readline()
            each.stdout.close()
            each.stdout = None
    threads = [threading.Thread(target=communicate, args=(at,)) for at in range(len(running))]
    for thread in threads:
        thread.start()
    try:
        _disturb(case, running[0], seen, seconds)
    finally:
        for thread in threads:
            thread.join(seconds)
        for each in running:
            each.kill()
            each.wait()
    return read


def _disturb(case: Case, launcher: "subprocess.Popen[bytes]", seen: Path, seconds: float) -> None:
    """Signal or pause the launcher as the case says, once its workers are ready."""
    if case.signal or case.pause_seconds:
        _wait_for(seen, "ready", case.ready, seconds)
    if case.signal:
        launcher.send_signal(signal.Signals[case.signal])
    if case.twice:
        _wait_for(seen, "saving", case.ready, seconds)
        launcher.send_signal(signal.Signals[case.signal])
    if case.pause_seconds:
        _pause(launcher.pid, case.pause_seconds, everything=case.everything)


def _pause(pid: int, seconds: float, *, everything: bool) -> None:
    """Stop the launcher, and what it started if that is meant, for so long."""
    stopped: list[int] = []
    waiting = [pid]
    while waiting:
        stopped.append(waiting.pop())
        os.kill(stopped[-1], signal.SIGSTOP)
        if everything:
            waiting += _children(stopped[-1])
    time.sleep(seconds)
    for each in stopped:
        with contextlib.suppress(ProcessLookupError):  # it ended of something else
            os.kill(each, signal.SIGCONT)


def _children(pid: int) -> list[int]:
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended since
            found += (thread / "children").read_text().split()
    return [int(child) for child in found]


def _wait_for_listener(port: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody listens at port {port} after {seconds} s")
        time.sleep(0.02)


def _wait_for(seen: Path, what: str, count: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while len(list(seen.glob(f"{what}-*"))) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{count} workers were not {what} within {seconds} s")
        time.sleep(0.02)


def _wait_for_upload(path: Path) -> None:
    """Until it is there, or will not be: then the observation says so."""
    deadline = time.monotonic() + _UPLOAD_SECONDS
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)


class _Stable:
    """Takes out of a text what differs between two runs of the same launcher."""

    def __init__(self, work: str, seen: str, port: str) -> None:
        self._port = port
        places = {str(SCRIPTS): "<scripts>", sys.prefix: "<prefix>", sys.base_prefix: "<base>"}
        self._places = {work: "<work>", seen: "<seen>"} | places

    def __call__(self, text: str) -> str:
        for place, name in self._places.items():
            text = text.replace(place, name)
        for pattern, name in _PASSING:
            text = re.sub(pattern, name, text)
        return re.sub(r"python3\.?1\d", "python3.N", text)

    def worker(self, worker: dict[str, Any]) -> dict[str, Any]:
        environment = {
            name: self._variable(name, value)
            for name, value in sorted(worker["environment"].items())
        }
        # An editable install puts the repository itself on the path.
        path = [entry for entry in worker["path"] if entry != str(REPOSITORY)]
        changed = worker | {"environment": environment, "path": path}
        return json.loads(self(json.dumps(changed)))  # type: ignore[no-any-return]

    def _variable(self, name: str, value: str) -> str:
        if value in (self._port, "127.0.0.1"):
            return "<port>" if value == self._port else value
        return "…" if name in UNSTABLE else value


def _out(stable: _Stable, case: Case, content: bytes) -> Any:
    """What of the console's output is compared."""
    if case.closes:
        return "…"
    if case.by_worker:
        said = by_worker(content.decode(errors="backslashreplace"))
        return {name: _many(said[name].split("\n")) for name in sorted(said)}
    if case.distinct:
        lines = content.decode(errors="backslashreplace").split("\n")
        return f"{len(set(lines))} distinct lines"
    return _lines(stable, content)


def by_worker(text: str) -> dict[str, str]:
    """What each worker wrote, by its prefix, whole again where a tee cut its lines in pieces."""
    said: dict[str, str] = {}
    before, *pieces = re.split(r"\[(default\d+)\]:", text)
    for name, piece in zip(pieces[::2], pieces[1::2], strict=True):
        said[name] = said.get(name, "") + piece
    return {"": before, **said} if before else said


def _lines(stable: _Stable, content: bytes) -> Any:
    lines = content.decode(errors="backslashreplace").split("\n")
    return _many(sorted(stable(line) for line in lines))


def _many(lines: list[str]) -> Any:
    if len(lines) <= _MANY_LINES:
        return lines
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return f"{len(lines)} lines, sha256 {digest}"


def _files(stable: _Stable, work: Path, copies: Iterable[str]) -> dict[str, Any]:
    """Files and directories below ``work/<run>/`` with their sorted lines."""
    found = {}
    for path in sorted(work.rglob("*")):
        below = path.relative_to(work)
        if str(below) in copies or below.parts[0] == "__pycache__":
            continue
        inside = "/".join(below.parts[1:]) or f"<{len(below.parts)}>{path.suffix}"
        content = None if path.is_dir() else path.read_bytes()
        found[inside] = "<directory>" if content is None else _content(stable, path, content)
    return found


def _content(stable: _Stable, path: Path, content: bytes) -> Any:
    if path.suffix != ".json":
        return _lines(stable, content)
    # Of a call stack its last line: the ones before are torch's own.
    error = json.loads(content)["message"]
    told = error["extraInfo"]["py_callstack"].strip().splitlines()[-1]
    return {"message": error["message"], "code": error.get("errorCode"), "last line": told}


def _report(stable: _Stable, err: str) -> list[str]:
    """The table of failures, its rules cut to one length."""
    found = re.search(r"^={3,}\n(.*?)^={3,}$", err, re.DOTALL | re.MULTILINE)
    if found is None:
        return []
    lines = [stable(line).rstrip() for line in found[1].splitlines() if line.strip()]
    return [re.sub(r"^-{3,}$", "---", line) for line in lines]


def _free_port() -> int:
    """One that neither the kernel gives to anybody meanwhile, nor a launcher to its workers."""
    while True:
        port = random.randrange(10_000, 15_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
