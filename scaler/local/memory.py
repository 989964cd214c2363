"""Facts about replicas that only this process knows, because no file has them."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from brain.types.world import ReplicaExit
from scaler.ports import ReplicaPhase, ReplicaSeen


@dataclass(slots=True)
class Memory:
    """Facts about replicas that only this process knows.

    If the process ends, some details of ended replicas are lost, but no replica is.
    """

    children: dict[Path, subprocess.Popen[bytes]] = field(default_factory=dict)
    last_codes: dict[Path, int] = field(default_factory=dict)
    asked: dict[Path, datetime] = field(default_factory=dict)
    #: Replicas that ended; their records no longer change.
    ended: dict[Path, ReplicaSeen] = field(default_factory=dict)
    #: Replicas whose agents ran at the last look.
    running: dict[Path, ReplicaSeen] = field(default_factory=dict)

    def reap(self, path: Path) -> int | None:
        """Collect an ended child process; return its exit code, or None if there was no child to
        collect.
        """
        child = self.children.get(path)
        if child is not None and child.poll() is not None:
            self.last_codes[path] = child.returncode
            del self.children[path]
        return self.last_codes.get(path)

    def jobs(self) -> set[str]:
        """Return the jobs of ended replicas, whose directories may be gone."""
        return {path.parent.name for path in self.ended}

    def forget(self, directory: Path) -> None:
        """Forget the ended replicas of a finished job; nobody asks for them again."""
        for path in [path for path in self.children if path.parent == directory]:
            self.reap(path)
        facts: tuple[dict[Path, Any], ...] = (self.last_codes, self.asked, self.ended, self.running)
        for known in facts:
            for path in [path for path in known if path.parent == directory]:
                del known[path]

    def with_vanished(
        self, directory: Path, found: Sequence[ReplicaSeen], now: datetime
    ) -> Sequence[ReplicaSeen]:
        """Add the replicas of a job whose directories somebody deleted. Their agents end by
        themselves.

        If other replicas of the job still have directories, these replicas count as lost. If all
        directories are gone, the job's history is gone, too, and a new start would silently repeat
        its work. So the replicas count as failed then.
        """
        here = {directory / str(one.id): one for one in found}
        for path, one in here.items():
            if one.phase in (ReplicaPhase.STARTING, ReplicaPhase.RUNNING):
                self.running[path] = one
            else:
                self.running.pop(path, None)
        vanished = [
            path
            for path in self.running
            if path.parent == directory and path not in here and not path.exists()
        ]
        for path in vanished:
            self.ended[path] = replace(
                self.running.pop(path),
                phase=ReplicaPhase.ENDED,
                adjustable=False,
                ended_at=now,
                exit=ReplicaExit.LOST if found else ReplicaExit.FAILED,
                detail=f"its directory is gone: somebody deleted {path} while its agent ran"
                if found
                else f"its directory is gone: somebody deleted {directory} while the job ran; "
                "submit the job again",
            )
        gone = {
            path: one
            for path, one in self.ended.items()
            if path.parent == directory and path not in here
        }
        for path in gone:
            self.reap(path)
        return sorted((*found, *gone.values()), key=lambda one: one.id)
