"""The intent to run a replica on this machine (``intent.json``)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from brain import wire
from brain.confinement import job_directory
from brain.types.resources import NodeName, Resources
from brain.types.roles import WORKER
from brain.views import DesiredJob
from scaler.local.directory import ReplicaDirectory
from scaler.local.node import LocalMachine
from scaler.ports import NOTHING, document, processes, reserved


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalIntent:
    """The fields of a ``ReplicaIntent`` that the backend reads; it writes all of them."""

    generation: int
    written_at: datetime
    role: str = WORKER
    resources: Resources = NOTHING
    #: Devices of this replica, in the form of ``CUDA_VISIBLE_DEVICES``.
    gpus: tuple[str, ...] = ()
    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentBuilder:
    """Builds intents; the fields are the same for all replicas of this machine."""

    home: Path
    node: NodeName
    url: str | None

    def build(
        self,
        wish: DesiredJob,
        replica: int,
        now: datetime,
        place: Path | None,
        group: str,
        *,
        machine: LocalMachine,
        gpus: Sequence[str],
    ) -> dict[str, Any]:
        """Return an intent in the form in which it is written; the replica gets ``gpus``.

        ``place`` is the directory of the member who owns the job; None if the service's user owns
        it.
        """
        job, amounts = document(wish), reserved(wish, group)
        return {
            "v": wire.VERSION,
            "job": wish.job,
            "name": wish.name,
            "replica": replica,
            "role": group,
            "node": self.node,
            "generation": wish.wish.generation,
            "command": job.command,
            "processes": processes(wish, group),
            "directory": job.directory or str(place / "home" if place else Path.home()),
            "checkpoint": wire.plain(job.checkpoint),
            "unit": wish.wish.unit,
            "minimum": wish.wish.minimum,
            "restart_limit": wish.wish.restart_limit,
            "brain_url": self.url,
            "token_file": str(job_directory(self.home, wish.job) / "token"),
            "home": str(place / "brain" if place else self.home),
            "accelerator": machine.accelerator if amounts.gpus else "cpu",
            "resources": wire.plain(amounts),
            "gpus": gpus,
            "written_at": now,
        }


def substitute_intent(directory: ReplicaDirectory, ours: bool) -> LocalIntent | None:
    """Return an intent in place of a damaged one, so that a replica counts while its agent lives.

    ``ours`` is True if the agent is a child process whose exit code has not been collected yet.
    """
    state = directory.path / "state.json"
    if not (directory.runs() or (ours and state.exists())):
        return None
    taken_at = datetime.fromtimestamp(state.stat().st_ctime, UTC)
    return LocalIntent(generation=0, written_at=taken_at, directory="/")
