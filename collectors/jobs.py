"""Reads the files that scaler and agents write, to find the jobs that have agents on this
machine.
"""

import os
from pathlib import Path

from brain.errors import BadInput
from brain.types.job import JobId
from brain.types.resources import NodeName
from collectors.host import LiveJob
from collectors.paths import Home, read_json


class ReplicaDirectories:
    """Reads ``replicas/*/*``; files of an ended replica are read only once.

    An agent is alive if the process that wrote ``state.json`` is alive, identified by pid and start
    time. The agent's lock is never tested, because an agent that tries to take the lock during the
    test would fail.
    """

    def __init__(self, home: Home, *, node: str) -> None:
        self._home, self._node = home, node
        self._ended: set[Path] = set()

    def live(self) -> list[LiveJob]:
        """Return the jobs with a running agent, ordered by id."""
        found: dict[str, list[Path]] = {}
        for directory in sorted(self._home.replicas.glob("*/*/")):
            if directory in self._ended:
                continue
            if (directory / "exit.json").exists():
                self._ended.add(directory)
            elif _agent(directory) is not None:
                found.setdefault(directory.parent.name, []).append(directory)
        return [self._live(job, directories) for job, directories in found.items()]

    def _live(self, job: str, directories: list[Path]) -> LiveJob:
        agents = {int(each.name): pid for each in directories if (pid := _agent(each)) is not None}
        intent = _read(directories[0] / "intent.json")
        node, pod = str(intent.get("node") or self._node), bool(intent.get("place_file"))
        return LiveJob(id=JobId(job), node=NodeName(node), agents=agents, pod=pod)

    def token(self, job: str) -> str:
        """Return the job's token from the job's own file, else from the token file that a replica's
        ``intent.json`` names.
        """
        own = self._home.token(job)
        for intent in () if own else self._intents(job):
            try:
                return Path(str(intent["token_file"])).read_text().strip()
            except (KeyError, OSError):
                continue
        return own

    def url(self, job: str) -> str | None:
        """Return the URL of Brain that the job's replicas use; None if they have none."""
        urls = (intent.get("brain_url") for intent in self._intents(job))
        return next((str(url) for url in urls if url), None)

    def _intents(self, job: str) -> list[dict[str, object]]:
        return [_read(path) for path in sorted(self._home.replicas.glob(f"{job}/*/intent.json"))]


def _agent(directory: Path) -> int | None:
    """Return the pid of a replica's agent; None if it does not run."""
    state = _read(directory / "state.json")
    pid, ticks = state.get("pid"), state.get("started_ticks")
    if not isinstance(pid, int) or _started_ticks(pid) != ticks:
        return None
    return pid


def _started_ticks(pid: int) -> int | None:
    """Return field 22 of ``/proc/<pid>/stat``; None if the process has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The second field is the command in brackets and may hold anything.
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] == "Z" else int(fields[19])


def _read(path: Path) -> dict[str, object]:
    try:
        return read_json(path)
    except (OSError, BadInput):
        return {}


def hostname() -> str:
    """Return this machine's name, as its scaler registers it."""
    return os.uname().nodename
