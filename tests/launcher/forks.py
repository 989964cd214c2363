"""Python processes that begin with torch loaded, which takes seconds: forks of one that has it."""

import atexit
import functools
import json
import os
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
    _, streams, _, _ = socket.recv_fds(client, 1, 2)
    asked = json.loads(client.makefile("rb").read())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if not (worker := os.fork()):
        for stream, number in zip(streams, (1, 2)):
            os.dup2(stream, number)
        try:
            run(asked)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
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


def run(lines: str, directory: Path, environment: Mapping[str, str]) -> str:
    """What ``lines`` print in a process of their own, which has to end well."""
    asked = {"lines": lines, "directory": str(directory), "environment": dict(environment)}
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        socket.socket(socket.AF_UNIX) as server,
    ):
        with _starting:
            path = _listening()
        server.connect(path)
        socket.send_fds(server, [b"?"], [out.fileno(), err.fileno()])
        server.sendall(json.dumps(asked).encode())
        server.shutdown(socket.SHUT_WR)
        status = server.makefile().read()
        out.seek(0)
        err.seek(0)
        assert status == "0", err.read()
        return out.read().strip()
