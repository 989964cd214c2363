"""``--logs-specs``: lets a plug-in of torchrun choose the destinations of the workers' output.

A ``LogsSpecs`` needs torch, so ``launcher/command/torchrun/ask_torch.py`` runs it under the
workers' interpreter, and this module calls it once for each world. The plug-in decides the file or
console of each stream, the streams to show, the files for filtered lines, the error file, and
changes to the workers' environments.
"""

import functools
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brain.errors import BadInput
from launcher.command.torchrun.description import ASK_TORCH
from launcher.values.config import LaunchConfig, LogConfig, Std
from launcher.workers.processes.output import Route, prefix_of


class Specs:
    """A plug-in, created by its entry point; it ends with this process."""

    def __init__(self, interpreter: str, logs: LogConfig, environment: Mapping[str, str]) -> None:
        """Start the plug-in.

        Raises: BadInput: there is no such plug-in, or it refuses its settings.
        """
        self._name = logs.specs or ""
        self._process = subprocess.Popen(
            [interpreter, str(ASK_TORCH), "logs", self._name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(environment),
            text=True,
        )
        self._ask(
            {
                "log_dir": logs.directory,
                "redirects": _streams(logs.redirects),
                "tee": _streams(logs.tee),
                "local_ranks": sorted(logs.local_ranks),
            }
        )

    def reify(self, environments: Mapping[int, Mapping[str, str]]) -> dict[str, Any]:
        """Return the plug-in's settings for the workers of one world, by local rank.

        Raises:
            BadInput: the plug-in failed.
        """
        return self._ask({str(rank): dict(each) for rank, each in environments.items()})

    def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            said = json.loads(self._process.stdout.readline())
        except (OSError, ValueError) as silent:
            said = {"error": f"it ended: {silent}"}
        if "error" in said:
            raise BadInput(f"--logs-specs={self._name}: {said['error']}", field="logs_specs")
        return dict(said)


def specs_of(config: LaunchConfig) -> Specs:
    """Return the configured plug-in; the first call starts it.

    Raises:
        BadInput: there is no such plug-in, or it refuses its settings.
    """
    environment = tuple(sorted(config.environment.items()))
    logs = config.logs
    told = (logs.specs or "", logs.directory, _frozen(logs.redirects), _frozen(logs.tee))
    return _made(config.entrypoint.interpreter, environment, *told, logs.local_ranks)


@functools.cache
def _made(
    interpreter: str,
    environment: tuple[tuple[str, str], ...],
    name: str,
    directory: str | None,
    redirects: tuple[tuple[int | None, Std], ...],
    tee: tuple[tuple[int | None, Std], ...],
    local_ranks: frozenset[int],
) -> Specs:
    logs = LogConfig(
        specs=name,
        directory=directory,
        redirects=dict(redirects),
        tee=dict(tee),
        local_ranks=local_ranks,
    )
    return Specs(interpreter, logs, dict(environment))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlace:
    """The destinations of one worker's output, its error file and its variables, as the plug-in
    chose.
    """

    #: Variables that it set or changed.
    environment: Mapping[str, str]
    ways: tuple[Route, Route]
    error_file: Path


def places(
    config: LaunchConfig, environment: Mapping[str, str], first_rank: int, count: int
) -> list[StreamPlace]:
    """Let the plug-in choose the destinations of the output for the workers of one world; return
    them in the order of local ranks.

    ``environment`` is the environment of local rank 0.

    Raises:
        BadInput: the plug-in does not exist, refuses its settings, or fails.
    """
    given = {
        local_rank: dict(environment)
        | {"LOCAL_RANK": str(local_rank), "RANK": str(first_rank + local_rank)}
        for local_rank in range(count)
    }
    said = specs_of(config).reify(given)
    return [
        StreamPlace(
            environment=_changed(before, said["environments"][str(local_rank)]),
            ways=_routes(said, config, rank=first_rank + local_rank, local_rank=local_rank),
            error_file=Path(said["error_files"][str(local_rank)]),
        )
        for local_rank, before in given.items()
    ]


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in after.items() if before.get(name) != value}


def _routes(
    said: Mapping[str, Any], config: LaunchConfig, *, rank: int, local_rank: int
) -> tuple[Route, Route]:
    """Return one worker's streams, from the plug-in's decision (torch's ``LogsDest``)."""
    logs = config.logs
    prefix = prefix_of(logs, role=config.role, rank=rank, local_rank=local_rank)

    def route(stream: str, filters: tuple[str, ...]) -> Route:
        file = said[f"{stream}s"].get(str(local_rank)) or None
        teed = str(local_rank) in said[f"tee_{stream}s"]
        filtered = said.get(f"filtered_{stream}")
        return Route(
            console=teed or file is None,
            file=Path(file) if file else None,
            replica_log=Path(logs.replica_log) if logs.replica_log else None,
            filtered=Path(filtered) if filters and teed and filtered else None,
            filters=filters,
            prefix=prefix if teed or logs.replica_log else "",
            tag=f"[{config.role}{rank}]:",
        )

    return route("stdout", logs.stdout_filters), route("stderr", logs.stderr_filters)


def _streams(given: Mapping[int | None, Std]) -> int | dict[str, int]:
    if None in given:
        return int(given[None])
    return {str(rank): int(std) for rank, std in given.items()}


def _frozen(given: Mapping[int | None, Std]) -> tuple[tuple[int | None, Std], ...]:
    return tuple(given.items())
