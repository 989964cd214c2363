"""Replicas as processes of this machine: a ``JobBackend`` on ``$BRAIN_HOME/replicas``.

Each agent runs in its own Unix session and outlives the scaler that started it. The backend reads
the agents' directories. It also remembers how its own child agents ended, and which agents it has
asked to leave.
"""

import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from brain.confinement import confined, job_directory, kept_jobs, veiled
from brain.types.accelerators import NVIDIA
from brain.types.grace import leave_seconds
from brain.types.job import JobId
from brain.types.resources import Node, NodeName, PoolName, Resources
from brain.types.roles import WORKER
from brain.types.world import ReplicaEnd, ReplicaExit
from brain.views import DesiredJob
from scaler.files import read_json, write_json, write_private
from scaler.local.directory import ReplicaDirectory, how
from scaler.local.intent import IntentBuilder, LocalIntent, substitute_intent
from scaler.local.limits import ControlGroups, ReplicaLimits
from scaler.local.members import Members, environment_of
from scaler.local.memory import Memory
from scaler.local.node import LocalMachine
from scaler.ports import NOTHING, Observed, ReplicaPhase, ReplicaSeen, document, reserved

log = logging.getLogger(__name__)

#: The agent's command. The interpreter is ours, and no package of the job may shadow ours: neither
#: from its directory (-P) nor from its PYTHONPATH (-E), which its workers still get.
AGENT = (sys.executable, "-E", "-P", "-m", "launcher.agent")

#: Variables that an agent inherits from the process that started Brain; the job's own environment
#: takes precedence.
_BASE = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR")
_BASE_MORE = ("LC_", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_", "CUDA_", "NVIDIA_", "XDG_")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    replica: int
    role: str = WORKER


@dataclass(frozen=True, slots=True, kw_only=True)
class _World:
    """The part of the coordinator's world document that this backend reads."""

    members: tuple[_Named, ...] = ()


class LocalBackend:
    """Agents as processes of this machine. ``agent`` is the command that starts an agent, to which
    the replica's directory is appended.
    """

    def __init__(
        self,
        home: Path,
        *,
        measure: Callable[[], LocalMachine],
        name: str,
        pool: str = "local",
        url: str | None = None,
        agent: Sequence[str] = AGENT,
        base: Mapping[str, str] = os.environ,
        groups: ControlGroups | None = None,
    ) -> None:
        self._home = home
        (home / "replicas").mkdir(mode=0o700, parents=True, exist_ok=True)
        self._members = Members(home)
        self._measure = measure
        self._machine = measure()
        self._name, self._pool = NodeName(name), PoolName(pool)
        self._intents = IntentBuilder(home=home, node=self._name, url=url)
        self._agent = tuple(agent)
        self._groups = groups or ControlGroups(home)
        self._groups.sweep(time.time())
        self._base = {k: v for k, v in base.items() if k in _BASE or k.startswith(_BASE_MORE)}
        self._memory = Memory()

    def nodes(self, now: datetime) -> Sequence[Node]:
        """Return this machine, measured now: quotas and affinity change over time."""
        self._machine = machine = self._measure()
        return (
            Node(
                name=self._name,
                pool=self._pool,
                capacity=machine.capacity,
                accelerator=machine.accelerator,
                slots=machine.slots,
                seen_at=now,
            ),
        )

    def jobs(self) -> Sequence[JobId]:
        """Return every job with a directory, and those whose directories were deleted."""
        own = (one.name for one in (self._home / "replicas").iterdir() if one.is_dir())
        return sorted(map(JobId, {*own, *kept_jobs(self._home), *self._memory.jobs()}))

    def observe(self, job: JobId, now: datetime) -> Observed:
        """Read the job's directories, and the reservations of the other jobs."""
        ids, roles = self._ids(job), self._roles(job)
        looks = (self._look(self._directory(job, replica), replica, now) for replica in ids)
        found = [one for one in looks if one]
        seen = self._memory.with_vanished(job_directory(self._home, job), found, now)
        return Observed(
            job=job,
            replicas=tuple(replace(one, role=roles.get(one.id, one.role)) for one in seen),
            next_id=max((*ids, *(one.id for one in seen)), default=-1) + 1,
            named=frozenset(roles),
            free=self._free(now),
        )

    def start(
        self,
        wish: DesiredJob,
        replica: int,
        environment: Mapping[str, str],
        now: datetime,
        *,
        group: str = WORKER,
    ) -> None:
        """Write the intent, then start the agent; no agent of this replica is started twice."""
        place = self._members.settle(wish.member, wish.job)
        directory = self._directory(wish.job, replica)
        directory.path.parent.mkdir(mode=0o700, exist_ok=True)
        content = self._intents.build(
            wish,
            replica,
            now,
            place,
            group,
            machine=self._machine,
            gpus=self._lend(wish, group, now),
        )
        directory.claim(content)
        intent = directory.intent(LocalIntent)
        if intent is None or directory.launched() or directory.ending():
            return
        hold = _enforced(wish, intent.role)
        held = self._groups.begin(f"{wish.job}-{replica}", intent.resources, hold)
        write_json(directory.path / "limits.json", held)
        try:
            child = self._launch(directory, place, environment, intent)
        except (OSError, ValueError) as why:
            # ValueError: an input that no process can have, such as a NUL in its environment.
            said = why.strerror if isinstance(why, OSError) else why
            detail = f"no agent can be started in directory {intent.directory}: {said}"
            directory.close(ReplicaEnd(exit=ReplicaExit.FAILED, detail=detail, at=now))
            return
        if child is not None:
            held = self._groups.enter(held, child.pid, hold)
            write_json(directory.path / "limits.json", held)
            self._memory.children[directory.path] = child
            log.info("started replica %d of %s as process %d", replica, wish.name, child.pid)

    def reserve(self, wish: DesiredJob, replica: int, now: datetime) -> None:
        """Change the amounts of a running replica, and store them in ``limits.json``."""
        directory = self._directory(wish.job, replica)
        intent, agent = directory.intent(LocalIntent), directory.agent()
        if intent is None or agent is None:
            return
        held = self._held(directory, intent)
        role = self._roles(wish.job).get(replica, intent.role)
        asked = replace(reserved(wish, role), gpus=intent.resources.gpus)
        changed = self._groups.change(held, asked, _enforced(wish, role), (agent,))
        if changed != held:
            write_json(directory.path / "limits.json", changed)
            log.info("replica %d of %s now reserves %s", replica, wish.name, changed.resources)

    def stop(self, job: JobId, replica: int, *, force: bool, now: datetime) -> None:
        """Send SIGTERM (or SIGKILL with ``force``) only to the agent, because its workers die with
        it.
        """
        directory = self._directory(job, replica)
        number = signal.SIGKILL if force else signal.SIGTERM
        if not directory.signal(number):
            # A child that has not taken its lock yet is certainly ours, unless it was reaped.
            child = self._memory.children.get(directory.path)
            if child is None or child.poll() is not None:
                return
            child.send_signal(number)
        self._memory.asked.setdefault(directory.path, now)

    def close(
        self, job: JobId, replica: int, exit: ReplicaExit, detail: str, now: datetime
    ) -> None:
        """Write ``gone.json``."""
        directory = self._directory(job, replica)
        code = self._memory.last_codes.get(directory.path)
        directory.close(ReplicaEnd(exit=exit, exit_code=code, detail=detail, at=now))

    def has_token(self, job: JobId) -> bool:
        """True if the job's directory has its token."""
        with suppress(PermissionError):
            return (job_directory(self._home, job) / "token").exists()
        return False

    def put_token(self, job: JobId, secret: str) -> None:
        """Write ``token`` in the job's directory, 0600."""
        directory = job_directory(self._home, job)
        directory.mkdir(mode=0o700, exist_ok=True)
        write_private(directory / "token", secret.encode())

    def environment(self, job: JobId, names: frozenset[str]) -> Mapping[str, str] | None:
        """Read the environment from a living agent's process, because its values are never
        stored.
        """
        for replica in reversed(self._ids(job)):
            directory = self._directory(job, replica)
            agent = directory.agent()
            if agent is None:
                continue
            pairs = Path(f"/proc/{agent}/environ").read_bytes().split(b"\0")
            given = dict(os.fsdecode(pair).partition("=")[::2] for pair in pairs if pair)
            if names <= given.keys():
                return {name: given[name] for name in names}
        return None

    def clear(self, job: JobId) -> None:
        """Remove the token; records and output stay for ``brain logs``."""
        directory = job_directory(self._home, job)
        (directory / "token").unlink(missing_ok=True)
        self._memory.forget(directory)

    def _roles(self, job: JobId) -> Mapping[int, str]:
        """Return the role of each replica that the job's last world document names."""
        world = read_json(job_directory(self._home, job) / "world.json", _World) or _World()
        return {member.replica: member.role for member in world.members}

    def _directory(self, job: JobId, replica: int) -> ReplicaDirectory:
        return ReplicaDirectory(job_directory(self._home, job) / str(replica))

    def _ids(self, job: JobId) -> list[int]:
        try:
            names = os.listdir(job_directory(self._home, job))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(int(name) for name in names if re.fullmatch("[0-9]{1,9}", name))

    def _look(self, directory: ReplicaDirectory, replica: int, now: datetime) -> ReplicaSeen | None:
        """Observe one replica; None if a crash left a directory without an intent."""
        if directory.path in self._memory.ended:
            return self._memory.ended[directory.path]
        code = self._memory.reap(directory.path)
        ours = directory.path in self._memory.children
        intent = directory.intent(LocalIntent) or substitute_intent(directory, ours)
        if intent is None:
            return None
        state = directory.state()
        held = self._held(directory, intent)
        phase = self._phase(directory)
        seen = ReplicaSeen(
            id=replica,
            phase=phase,
            generation=intent.generation,
            resources=held.resources,
            role=intent.role,
            unenforced=held.unenforced,
            adjustable=phase is ReplicaPhase.RUNNING,
            started_at=intent.written_at,
            exit_code=code,
            asked_at=self._memory.asked.get(directory.path),
            leave_seconds=leave_seconds(None if state is None else state.grace_seconds),
        )
        if seen.phase is ReplicaPhase.GONE:
            return replace(seen, detail=how(code, directory.last_words()))
        if seen.phase is ReplicaPhase.ENDED and (ending := directory.ending()):
            seen = replace(
                seen,
                ended_at=ending.at,
                exit=ending.exit,
                exit_code=ending.exit_code,
                detail=ending.detail,
                unfit=ending.unfit,
            )
            if self._groups.end(held):
                self._memory.ended[directory.path] = seen
        return seen

    def _held(self, directory: ReplicaDirectory, intent: LocalIntent) -> ReplicaLimits:
        held = read_json(directory.path / "limits.json", ReplicaLimits)
        name = "-".join(directory.path.parts[-2:])
        return self._groups.made(held or ReplicaLimits(resources=intent.resources), name)

    def _phase(self, directory: ReplicaDirectory) -> ReplicaPhase:
        """Return the phase that the replica's files prove.

        A child counts as running until its exit code is known: a process releases its lock before
        the kernel has ended it.
        """
        phase = directory.phase()
        over = phase in (ReplicaPhase.ENDED, ReplicaPhase.GONE)
        return ReplicaPhase.RUNNING if over and directory.path in self._memory.children else phase

    def _free(self, now: datetime) -> Resources:
        used = sum((replica.resources for _, replica in self._alive(now)), NOTHING)
        return self._machine.capacity - used

    def _alive(self, now: datetime) -> Iterator[tuple[ReplicaDirectory, ReplicaSeen]]:
        for job in self.jobs():
            with suppress(OSError):  # its own doing: that keeps no other job from its replicas
                for replica in self._ids(job):
                    directory = self._directory(job, replica)
                    seen = self._look(directory, replica, now)
                    if seen is not None and seen.alive:
                        yield directory, seen

    def _lend(self, wish: DesiredJob, group: str, now: datetime) -> list[str]:
        """Return devices that no living replica has."""
        count = reserved(wish, group).gpus
        if not count:
            return []
        lent: set[str] = set()
        for directory, _ in self._alive(now):
            intent = directory.intent(LocalIntent)
            lent.update(intent.gpus if intent else ())
        return [name for name in self._machine.gpus if name not in lent][:count]

    def _launch(
        self,
        directory: ReplicaDirectory,
        place: Path | None,
        given: Mapping[str, str],
        intent: LocalIntent,
    ) -> subprocess.Popen[bytes] | None:
        devices = {NVIDIA.visible: ",".join(intent.gpus)} if intent.gpus else {}
        if place is None:
            environment = self._base | dict(given) | devices
            return directory.launch(self._agent, environment, intent.directory)
        agent = confined(self._home, place, intent.directory, self._agent)
        environment = environment_of(place, self._base) | dict(given) | devices
        return directory.launch(agent, veiled(environment), "/")


def _enforced(wish: DesiredJob, role: str = WORKER) -> Resources:
    """Return the amounts that a replica is limited to: its memory, and CPU that a plan changed.

    The CPU of a document only reserves: a document that does not name CPU also says 1.
    """
    asked, said = reserved(wish, role), document(wish).allocation.of(role)
    return replace(asked, cpu_millis=0 if asked.cpu_millis == said.cpu_millis else asked.cpu_millis)
