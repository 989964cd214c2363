"""Python processes that begin with modules loaded that take seconds: forks of one that has them."""

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_TORCH = "torch.distributed.checkpoint.state_dict, torch.distributed.fsdp"

#: Forks for each connection a process that runs what is asked for and answers with its exit status.
_SERVER = """
import gc, json, os, select, signal, socket, sys
gc.disable()
import {modules}
gc.freeze()
gc.enable()
def run(asked):
    os.chdir(asked["directory"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    exec(compile(asked["lines"], "<string>", "exec"), dict(__name__="__main__"))
def answer(client):
    _, streams, _, _ = socket.recv_fds(client, 1, 3)
    asked = json.loads(client.makefile("rb").readline())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if not (worker := os.fork()):
        client.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        code = 0
        try:
            run(asked)
        except SystemExit as end:
            code = end.code
            if isinstance(code, str):
                print(code, file=sys.stderr)
                code = 1
        except BaseException:
            sys.excepthook(*sys.exc_info())
            code = 1
        sys.stdout.flush()
        os._exit(code or 0)
    client.sendall(b"%d\\n" % worker)
    client.sendall(str(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])).encode())
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print(flush=True)
while sys.stdin not in (ready := select.select([sys.stdin, listener], [], [])[0]):
    client, _ = listener.accept()
    if not os.fork():
        listener.close()
        answer(client)
        os._exit(0)
    client.close()
"""


_starting = threading.Lock()


@functools.cache
def _listening(modules: str) -> str:
    """The socket of a server with these modules, which lives as long as this process."""
    path = Path(tempfile.mkdtemp(prefix="brain-forks-")) / "socket"
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER.format(modules=modules), str(path)],
        env=dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    @atexit.register
    def end() -> None:
        server.communicate()
        path.unlink()
        path.parent.rmdir()

    assert server.stdout is not None
    assert server.stdout.readline()
    return str(path)


class Fork:
    """One such process; used as a ``Popen`` is."""

    def __init__(
        self,
        lines: str,
        directory: Path,
        environment: Mapping[str, str],
        streams: Sequence[int],
        modules: str,
    ) -> None:
        """Run ``lines`` in ``directory``, with nothing but ``environment``, on three descriptors;
        ``modules`` are imported before the fork.
        """
        asked = {"lines": lines, "directory": str(directory), "environment": dict(environment)}
        with _starting:
            path = _listening(modules)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(path)
        socket.send_fds(self._server, [b"?"], streams)
        self._server.sendall(json.dumps(asked).encode() + b"\n")
        self._answers = self._server.makefile()
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """Its exit status, once it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status; negative where a signal ended it."""
        if self.returncode is None:
            if not select.select([self._server], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            self.returncode = int(self._answers.read())
            self._answers.close()
            self._server.close()
        return self.returncode


class Worker(Fork):
    """One with torch, and with pipes."""

    def __init__(self, lines: str, directory: Path, environment: Mapping[str, str]) -> None:
        theirs, stdin = os.pipe()
        ours, stdout = os.pipe()
        self.stdin, self.stdout = os.fdopen(stdin, "w"), os.fdopen(ours)
        self.stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by whoever reads it
        streams = (theirs, stdout, self.stderr.fileno())
        super().__init__(lines, directory, environment, streams, _TORCH)
        os.close(theirs)
        os.close(stdout)

    def communicate(self) -> tuple[str, str]:
        """What it printed on both streams until its end."""
        self.stdin.close()
        with self.stdout, self.stderr:
            out = self.stdout.read()
            self.wait()
            self.stderr.seek(0)
            return out, self.stderr.read()


def run(lines: str, directory: Path, environment: Mapping[str, str]) -> str:
    """What ``lines`` print in a process of their own, which has to end well."""
    worker = Worker(lines, directory, environment)
    out, err = worker.communicate()
    assert worker.returncode == 0, err
    return out.strip()
