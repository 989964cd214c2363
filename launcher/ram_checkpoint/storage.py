"""Writes steps that ``launcher.checkpoint`` keeps in memory to storage, for the flusher.

If a state is the same on all ranks, the agent of rank 0 stores it as one file. If each rank has
only pieces of the state, every agent stores its pieces in a directory whose name begins with a dot.
The agent of rank 0 gives the directory its final name once all pieces are there, so a step with a
final name is complete.
"""

import contextlib
import errno
import json
import os
import shutil
import time
from pathlib import Path

from launcher.values.ram_checkpoint import parts
from launcher.values.ram_checkpoint.parts import StepPart

#: Steps that stay on storage.
KEPT = 2
_RETRY_SECONDS = 1.0
#: Ranks save a step within so many seconds, clocks included.
_SAME_SECONDS = 60.0
#: Seconds that storage refuses, or others give no sign, after which an agent that leaves waits
#: no longer.
STUCK_SECONDS = 15.0


class StepStorage:
    """Writes the steps in one directory of shared memory to storage, one step per call of
    ``turn``.
    """

    def __init__(self, root: Path) -> None:
        self._steps, self._name = root / "steps", root.name
        self._next_try = 0.0
        #: Directory that waits for pieces of other agents; None if none does.
        self._gathering: Path | None = None
        #: Since when, and why, storage refuses; monotonic seconds.
        self._refused: tuple[float, str] | None = None

    def turn(self, *, breakpoint: bool) -> bool:
        """Store the newest step that belongs on storage.

        Return True if a step is still to be written to storage. With ``breakpoint``, also store
        steps that were meant to stay in memory.
        """
        wanted = [
            part
            for part in parts.found(self._steps)
            if (breakpoint or _ours(part)) and not self._stored(part)
        ]
        if not wanted:
            return False
        if time.monotonic() < self._next_try:
            return True
        key = wanted[-1].key
        mark = self._steps / str(key) / "persisting"
        try:
            mark.touch()
            waiting = self._store([part for part in wanted if part.key == key], breakpoint)
            self._refused = None
            with contextlib.suppress(FileNotFoundError):
                (self._steps / "error").unlink()
        except FileNotFoundError:  # pruned at this moment
            return True
        except OSError as refused:
            told = {"errno": refused.errno, "text": str(refused)}
            (self._steps / "error").write_text(json.dumps(told))
            self._refused = self._refused or (time.monotonic(), str(refused))
            self._next_try = time.monotonic() + _RETRY_SECONDS
            return True
        finally:
            with contextlib.suppress(FileNotFoundError):
                mark.unlink()
        if not waiting:
            for part in wanted:  # older ones are of no use any more
                self._mark_stored(part)
        return waiting

    @property
    def stuck(self) -> str:
        """Return why the outstanding step can no longer be stored; empty if it still can."""
        if self._refused is not None and time.monotonic() - self._refused[0] > STUCK_SECONDS:
            return self._refused[1]
        gathering = self._gathering
        if gathering is None or time.time() - _changed_at(gathering) < STUCK_SECONDS:
            return ""
        return f"{gathering}: the pieces of other agents did not arrive"

    def _stored(self, part: StepPart) -> bool:
        return (self._steps / str(part.key) / f"stored-{part.rank}").exists()

    def _mark_stored(self, part: StepPart) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self._steps / str(part.key) / f"stored-{part.rank}").touch()

    def _store(self, mine: list[StepPart], breakpoint: bool) -> bool:
        """Store one step; return True if pieces of other agents are still missing."""
        if mine[0].shared:
            # The agent of rank 0 stores it; that one may be what was lost.
            any_will_do = mine[0] if breakpoint else None
            first = next((part for part in mine if part.rank == 0), any_will_do)
            if first is not None:
                self._store_file(first)
            return False
        return self._store_pieces(mine)

    def _store_file(self, part: StepPart) -> None:
        place = Path(part.path)
        place.mkdir(parents=True, exist_ok=True)
        final = parts.final(place, part.step, sharded=False)
        if part.rank != 0 and final.exists():
            return
        for old in place.glob(f".step-*-{self._name}"):  # of a flusher that was killed
            old.unlink()
        temporary = place / f".step-{part.step}-{self._name}"
        _copy(self._steps / str(part.key) / "state.pt", temporary)
        os.replace(temporary, final)
        parts.sync(place)
        parts.retire(place, KEPT)

    def _store_pieces(self, mine: list[StepPart]) -> bool:
        place, step = Path(mine[0].path), mine[0].step
        final = parts.final(place, step, sharded=True)
        gathering = place / f".step-{mine[0].key}.parts"
        first = next((part for part in mine if part.rank == 0), None)
        whole = "" if first is None else f"{first.key} {first.accepted}"
        if _is_of(mine[0], _says(final / ".whole")):
            shutil.rmtree(gathering, ignore_errors=True)
            return False  # by an agent that has copies
        done = [gathering / f".done-{rank}" for rank in range(mine[0].world)]
        gathering.mkdir(parents=True, exist_ok=True)
        for part in mine:
            if not done[part.rank].exists():
                for name in part.files:
                    half = gathering / f".half-{part.rank}-{self._name}"
                    _copy(self._steps / str(part.key) / name, half)
                    os.replace(half, gathering / name)
                parts.sync(gathering)
                done[part.rank].touch()
        if not whole:
            return False  # the agent of rank 0 does the rest
        if not all(mark.exists() for mark in done):
            self._gathering = gathering
            return True
        self._gathering = None
        for mark in done:
            mark.unlink(missing_ok=True)
        (gathering / ".whole").write_text(whole)
        _become(gathering, final, whole)
        parts.sync(place)
        parts.retire(place, KEPT)
        for old in place.glob(".step-*.parts"):
            if int(old.name.removeprefix(".step-").partition("-")[0]) < step:
                shutil.rmtree(old, ignore_errors=True)
        return False


def _is_of(part: StepPart, whole: str) -> bool:
    """True if the step on storage is the save of ``part``, not one of an earlier run."""
    key, _, accepted = whole.partition(" ")
    return key == str(part.key) and abs(float(accepted) - part.accepted) < _SAME_SECONDS


def _become(gathering: Path, final: Path, whole: str) -> None:
    """Give the gathered pieces their final name; replace a step of that name from an earlier
    run.
    """
    try:
        os.rename(gathering, final)
        return
    except OSError as taken:
        if taken.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    if _says(final / ".whole") != whole:
        aside = gathering.with_suffix(".old")
        os.rename(final, aside)
        os.rename(gathering, final)
        shutil.rmtree(aside, ignore_errors=True)


def _ours(part: StepPart) -> bool:
    """True if this agent must store the part: its own pieces, or rank 0's whole state."""
    return part.storage and not part.copied and (part.rank == 0 or not part.shared)


def _says(path: Path) -> str:
    """Return the text of a small file; empty if there is no file."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _changed_at(directory: Path) -> float:
    """Return the time of the last change in a directory, in Unix seconds; 0 if it is gone."""
    newest = 0.0
    with contextlib.suppress(FileNotFoundError):
        for path in (directory, *directory.iterdir()):
            with contextlib.suppress(FileNotFoundError):
                newest = max(newest, path.stat().st_mtime)
    return newest


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    parts.sync(target)
