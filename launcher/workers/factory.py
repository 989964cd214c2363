"""Makes one worker: its environment, its streams, and a process that runs the command."""

import os
import subprocess
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from brain.errors import BadInput, Unavailable
from launcher.values.config import LaunchConfig, WorldDocument
from launcher.workers import log_specs
from launcher.workers.environment import WorkerInjection, worker_arguments, worker_environment
from launcher.workers.fork_server import command as commands
from launcher.workers.fork_server.fork_server import ForkServer
from launcher.workers.processes import evidence, output, process
from launcher.workers.processes.control import Control


class WorkerFactory:
    """Makes the workers of one agent for one world, in order of local rank."""

    def __init__(
        self,
        config: LaunchConfig,
        world: WorldDocument,
        group_rank: int,
        *,
        directory: Path,
        fork_server: ForkServer | None,
        guard: process.Guard,
        held: bool,
        elastic: Mapping[str, object] | None,
    ) -> None:
        """``directory`` is the workers' private directory. ``held`` workers wait at the gate.
        ``elastic`` is the part of BRAIN_WORKER about sessions.
        """
        self._config, self._world, self._group_rank = config, world, group_rank
        self._directory, self._fork_server, self._guard = directory, fork_server, guard
        self._held, self._elastic = held, elastic
        self._before = evidence.baseline()
        #: Error files, by which stray children are found.
        self.marks: set[bytes] = set()
        #: What a plug-in says of each worker (``--logs-specs``).
        self._places: list[log_specs.StreamPlace] = []

    @cached_property
    def files(self) -> Path:
        """Return the directory of this world's files: kept with ``--log-dir``, else private."""
        run = self._config.logs.run_directory
        if run is None:
            return self._directory / "attempt"
        return output.attempt_directory(Path(run), self._world.restart_count, self._world.epoch)

    async def make(self, local_rank: int) -> process.WorkerProcess:
        """Start one worker, and return its process.

        Raises:
            BadInput: the program cannot be used, or a worker with this command cannot be held
                before it runs the script.
        """
        config, world = self._config, self._world
        rank = world.first_rank(self._group_rank) + local_rank
        control = Control(self._directory / f"control-{rank}")
        control.gate(self._held)
        error_file = self.files / str(local_rank) / "error.json"
        error_file.parent.mkdir(parents=True, exist_ok=True)
        environment = worker_environment(
            config,
            world,
            self._group_rank,
            local_rank,
            injection=self._injection(control, local_rank),
            error_file=str(error_file),
        )
        ways = output.routes(
            config.logs,
            self.files,
            role=environment["ROLE_NAME"],
            rank=rank,
            local_rank=local_rank,
        )
        if config.logs.specs is not None:
            if local_rank == 0:
                count = world.member(self._group_rank).processes
                self._places = log_specs.places(config, environment, rank, count)
            place = self._places[local_rank]
            environment |= place.environment
            ways, error_file = place.ways, place.error_file
        streams = output.streams(ways)
        started = await self._launch(worker_arguments(config, local_rank), environment, streams)
        if config.bindings:
            process.bind(started.pid, config.bindings[local_rank])
        self._guard.add(self._directory, started.pid, mark := os.fsencode(error_file))
        self.marks.add(mark)
        for stream in streams:
            stream.given()
            if not self._held:
                stream.read()
        return process.WorkerProcess(
            rank, local_rank, started, control, streams, error_file, self._before
        )

    def _injection(self, control: Control, local_rank: int) -> WorkerInjection:
        return WorkerInjection(
            inject=str(Path(__file__).parents[1] / "inject" / "path"),
            probe=process.probe_path() if self._config.probe else None,
            control=str(control.path),
            agent=str(self._directory / "agent"),
            gate=self._gate(),
            elastic=self._elastic and {**self._elastic, "local_rank": local_rank},
            learn=self._learn(local_rank),
            first=self._first(),
        )

    def _first(self) -> str | None:
        config = self._config
        command = commands.read(config.entrypoint.argv) if config.entrypoint.python else None
        if command is None:
            return None
        return commands.first_path(command, config.directory, config.environment)

    def _learn(self, local_rank: int) -> str | None:
        if local_rank or self._fork_server is None or not self._fork_server.learns:
            return None
        return str(self._directory / "imports")

    def _gate(self) -> dict[str, object]:
        if not self._held or self._fork_server is None:
            return {}
        known = sorted(self._fork_server.checkpoints)
        return {"gate": True, "since": self._fork_server.since, "checkpoints": known}

    async def _launch(
        self, arguments: list[str], environment: dict[str, str], streams: list[output.OutputStream]
    ) -> process.Running:
        """Start a process that runs the command: a fork if the fork server can make one."""
        if self._fork_server is not None:
            stdin = os.open(os.devnull, os.O_RDONLY) if self._config.replica_directory else 0
            fds = [stdin, *(n if s.fd is None else s.fd for n, s in enumerate(streams, 1))]
            try:
                return await self._fork_server.fork(arguments, environment, fds)
            except Unavailable as cannot:  # the fork server has said so, too
                if self._held:
                    raise BadInput(f"not prepared: {cannot}", field="entrypoint") from cannot
            finally:
                if stdin:
                    os.close(stdin)
        return self._spawn(arguments, environment, streams)

    def _spawn(
        self, arguments: list[str], environment: dict[str, str], streams: list[output.OutputStream]
    ) -> "subprocess.Popen[bytes]":
        reaped = [*process.reaped(), "exec", str(os.getpid()), *arguments]
        return subprocess.Popen(
            reaped,
            env=environment,
            cwd=self._config.directory,
            stdin=None if self._config.replica_directory is None else subprocess.DEVNULL,
            stdout=streams[0].fd,
            stderr=streams[1].fd,
            start_new_session=True,
        )
