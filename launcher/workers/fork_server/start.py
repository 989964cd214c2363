"""Starts a fork server under the workers' interpreter, with the settings that its workers share."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.values.config import LaunchConfig
from launcher.workers.fork_server import command as commands
from launcher.workers.fork_server.channel import Channel
from launcher.workers.fork_server.command import PythonCommand

_SERVER = Path(__file__).parents[2] / "inject" / "fork_server.py"
#: Room for the command line and for what tells a worker from others, as the kernel shows them.
_TITLE_BYTES, _SHOWN_BYTES = 2048, 4096


def start(
    config: LaunchConfig,
    command: PythonCommand | None,
    settings: Mapping[str, str],
    gone: Callable[[], None],
) -> Channel:
    """Start a server that has imported nothing yet, and return the channel to it. For a command
    that is not Python, start a bare server.

    Raises:
        OSError: there is no such interpreter.
    """
    python = [sys.executable, "-I", "-S"]
    if command is not None:
        python = [config.entrypoint.argv[0], *command.options]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    title = " " * _TITLE_BYTES
    # The variable comes last: what is written over it ends where the kernel's text does.
    shown = {"TORCHELASTIC_ERROR_FILE": " " * _SHOWN_BYTES}
    try:
        with theirs:
            server = subprocess.Popen(
                [*python, str(_SERVER), str(theirs.fileno()), str(os.getpid()), title],
                env=environment_of(config) | dict(settings) | shown,
                cwd=config.directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
    except OSError:
        ours.close()
        raise
    return Channel(server, ours, gone)


def environment_of(config: LaunchConfig) -> dict[str, str]:
    """Return the environment that all workers of this agent share.

    Libraries read it when they are imported.
    """
    ours = ("BRAIN_WORKER", "TORCHELASTIC_ERROR_FILE")
    base = {name: value for name, value in config.environment.items() if name not in ours}
    base.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    if config.processes > 1:
        base.setdefault("OMP_NUM_THREADS", "1")
    return base


def spec_of(
    config: LaunchConfig,
    command: PythonCommand | None,
    argv: "list[str]",
    environment: Mapping[str, str],
    *,
    fds: Sequence[int] = (),
    sets_nothing: bool = False,
) -> dict[str, Any]:
    """Return the server's specification of one worker; the server was started for ``command``.

    ``fds`` are the worker's standard streams in this process. ``sets_nothing`` is True if, in an
    earlier run, a script with the same text made no settings before its imports.
    """
    # Only arguments differ between workers (``${local_rank}``), so this reads as that did.
    own = None if command is None else commands.read(argv)
    return {
        "kind": "exec" if own is None else own.kind,
        "target": "" if own is None else own.target,
        "arguments": [] if own is None else own.arguments,
        "argv": argv,
        "first": own and commands.first_path(own, config.directory, config.environment),
        "environment": dict(environment),
        "directory": config.directory,
        # The agent has /dev/null in place of a stream that it was started without.
        "closed": [fd for fd in fds if fd <= 2 and not os.get_inheritable(fd)],
        "sets_nothing": sets_nothing,
        "of_ranks": ["CUDA_VISIBLE_DEVICES"] if config.virtual_local_rank else [],
    }
