"""Python processes that begin with torch loaded, which takes seconds: forks of one that has it."""

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

#: Forks for each connection a process that runs what is asked for and answers with its exit status.
_SERVER = """
import json, os, select, signal, socket, sys
import torch.distributed.checkpoint.state_dict, torch.distributed.fsdp
def run(asked):
    os.chdir(asked["directory"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    exec(compile(asked["lines"], "<string>", "exec"), {"__name__": "__main__"})
def answer(client):
    _, streams, _, _ = socket.recv_fds(client, 1, 3)
    asked = json.loads(client.makefile("rb").readline())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if not (worker := os.fork()):
        client.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        try:
            run(asked)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
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
def _listening() -> str:
    """The socket of a server that lives as long as this process."""
    path = Path(tempfile.mkdtemp(prefix="brain-forks-")) / "socket"
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(path)],
        env=dict(os.environ, OMP_NUM_THREADS="1"),
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
    """One such process; used as a ``Popen`` with pipes is."""

    def __init__(self, lines: str, directory: Path, environment: Mapping[str, str]) -> None:
        """Start ``lines`` in ``directory``, with nothing but ``environment``."""
        theirs, stdin = os.pipe()
        stdout, ours = os.pipe()
        self.stdin, self.stdout = os.fdopen(stdin, "w"), os.fdopen(stdout)
        self.stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by whoever reads it
        asked = {"lines": lines, "directory": str(directory), "environment": dict(environment)}
        with _starting:
            path = _listening()
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(path)
        socket.send_fds(self._server, [b"?"], [theirs, ours, self.stderr.fileno()])
        os.close(theirs)
        os.close(ours)
        self._server.sendall(json.dumps(asked).encode() + b"\n")
        self._answers = self._server.makefile()
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def kill(self) -> None:
        """End it at once."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Its exit status; negative where a signal ended it."""
        if self.returncode is None:
            self.returncode = int(self._answers.read())
            self._answers.close()
            self._server.close()
        return self.returncode

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
    worker = Fork(lines, directory, environment)
    out, err = worker.communicate()
    assert worker.returncode == 0, err
    return out.strip()
