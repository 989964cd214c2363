"""Keeps one collector running on this machine, whichever agent started it."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from brain.types.places import probe_socket
from launcher.values.replica import held

#: Seconds between two looks at the collector's lock.
_LOOK_SECONDS = 2.0
#: Seconds after which one that ends at once is started again, doubled up to the second.
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 2.0, 60.0
#: A collector that holds its lock listens by the first look; one that never does is elsewhere.
_DEAF_LOOKS = 5
#: By name: the four programs do not import each other.
_COLLECTOR = (sys.executable, "-E", "-P", "-m", "collectors.loop")


async def keep_collector(home: str, say: Callable[[str], None]) -> None:
    """Start a collector whenever no collector holds the lock; training never waits for it.

    The collector has its own Unix session and outlives this agent, because other jobs may need it.
    It exits when no job needs it.
    """
    lock = Path(home) / "collector" / "lock"
    socket_path = probe_socket(home, os.getuid())
    deaf_looks = 0
    lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    pause = _FIRST_RETRY_SECONDS
    started: subprocess.Popen[bytes] | None = None
    while True:
        if started is not None and (code := started.poll()) is not None:
            started = None
            pause = min(2 * pause, _LAST_RETRY_SECONDS)
            say(f"the collector exited with code {code}; another one starts if none runs")
        if started is None and not held(lock):
            try:
                started = _start(home)
            except OSError as cannot:  # a full disk, or no room for a process: later
                pause = min(2 * pause, _LAST_RETRY_SECONDS)
                say(f"no collector can be started ({cannot}); the agent tries again")
        elif held(lock):
            pause = _FIRST_RETRY_SECONDS
            deaf_looks = 0 if _is_bound(socket_path) else deaf_looks + 1
            if deaf_looks == _DEAF_LOOKS:
                say(
                    "samples of this machine are lost: the collector of another machine holds "
                    f"{lock}; set BRAIN_HOME to a directory that only this machine uses"
                )
        await asyncio.sleep(_LOOK_SECONDS if started or held(lock) else pause)


def undelivered(home: str, job: str, url: str) -> str | None:
    """Return why Brain at ``url`` gets no samples of a job started by hand; None if it gets them.

    Brain accepts samples only of submitted jobs, with the job's own token.
    """
    asked = Path(home) / "service.json", Path(home) / "replicas" / job / "token"
    missing = [str(path) for path in asked if not path.is_file()]
    if not missing:
        return None
    return (
        f"Brain at {url} learns nothing about this run, because {' and '.join(missing)} "
        f"{'is' if len(missing) == 1 else 'are'} missing; start it with `brain submit`, or leave "
        "--brain and BRAIN_URL out"
    )


def _is_bound(path: str) -> bool:
    """True if a process of this machine listens on the socket at ``path``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probing:
        return probing.connect_ex(path) == 0


def _start(home: str) -> "subprocess.Popen[bytes]":
    log = Path(home) / "collector" / "collector.log"
    with log.open("ab") as out:
        return subprocess.Popen(
            [*_COLLECTOR, "--home", home],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
