"""A scratch directory for trial runs, which shows a job's files but not its checkpoint.

Most files are links. Python files are copied: a script that saves beside its own file then saves in
the scratch directory. Files named like the checkpoint are copied, too, because writing to a link
changes its target.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brain.errors import BadInput

#: Most bytes of files that are copied.
_COPIED_BYTES = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The directory of a script, and the path of its checkpoint, which a trial must not change."""

    directory: Path
    #: Checkpoint's path relative to ``directory``; None if it is elsewhere, or nothing is saved.
    inside: Path | None
    #: Checkpoint's path as the command or environment names it, if it is not inside.
    outside: str | None
    #: Checkpoint's path with the time of its last change and its size, None for a missing file;
    #: None if the script saves nothing.
    seen: tuple[Path, tuple[int, int] | None] | None

    @classmethod
    def of(cls, document: Mapping[str, Any], *, saves_nothing: bool) -> "View":
        """Return the view for a document.

        Raises:
            BadInput: the script's checkpoint is not declared, or cannot be replaced by another
                path.
        """
        directory = Path(str(document["directory"])).absolute()
        if not directory.is_dir():
            raise BadInput(
                f"directory {directory} does not exist; correct its path", field="directory"
            )
        said = (document.get("checkpoint") or {}).get("path")
        if said is None and not saves_nothing:
            raise BadInput(
                "checkpoint.path is not declared, so the probe could overwrite checkpoints; "
                "give --checkpoint PATH, or --checkpoint none if the script saves nothing",
                field="checkpoint.path",
            )
        if said is None:
            return cls(directory=directory, inside=None, outside=None, seen=None)
        path = Path(os.path.normpath(directory / said))
        seen = (path, _state(path))
        if path.is_relative_to(directory) and path != directory and not Path(said).is_absolute():
            inside = path.relative_to(directory)
            return cls(directory=directory, inside=inside, outside=None, seen=seen)
        _expect_named(document, said)
        return cls(directory=directory, inside=None, outside=said, seen=seen)

    @property
    def promise(self) -> str:
        """Return the sentence that a person reads before a trial starts."""
        if self.seen is None:
            return (
                f"The script runs in a scratch directory that links to {self.directory}. You "
                "declared that the script saves nothing: if it opens a linked file for "
                "writing, it changes the original."
            )
        return f"Checkpoints of the probe go to a scratch directory; {self.seen[0]} is not changed."

    def changed(self) -> Path | None:
        """Return the checkpoint's path if the trial changed its content, which no trial may do;
        else None.
        """
        if self.seen is None or _state(self.seen[0]) == self.seen[1]:
            return None
        return self.seen[0]


def apart(
    view: View, document: Mapping[str, Any], command: Sequence[str], scratch: Path
) -> dict[str, Any]:
    """Fill ``scratch``, and return the document that runs the script in this directory.

    Raises:
        BadInput: a file cannot be read, or the files beside the checkpoint are too large to copy.
    """
    try:
        _show(view.directory, scratch, view.inside)
    except OSError as unreadable:
        raise BadInput(
            f"the probe run cannot read {unreadable.filename or view.directory}: "
            f"{unreadable.strerror}; give yourself read permission, or run the command from "
            "another directory",
            field="directory",
        ) from unreadable
    words, environment = list(command), dict(document.get("environment") or {})
    checkpoint = dict(document.get("checkpoint") or {})
    if view.outside is not None:
        aside = str(scratch / ".probe-checkpoint" / Path(view.outside).name)
        Path(aside).parent.mkdir()
        words = [word.replace(view.outside, aside) for word in words]
        environment = {
            name: value.replace(view.outside, aside) if isinstance(value, str) else value
            for name, value in environment.items()
        }
        checkpoint["path"] = aside
    made = {key: value for key, value in document.items() if key not in ("budget", "deadline")}
    return made | {
        "command": [_moved(word, view.directory, scratch) for word in words],
        "directory": str(scratch),
        "environment": environment,
        "checkpoint": checkpoint,
    }


def _moved(word: str, directory: Path, scratch: Path) -> str:
    """Return the word; a script's absolute path becomes its path in ``scratch``."""
    path = Path(word)
    if path.suffix == ".py" and path.is_absolute() and path.is_relative_to(directory):
        return str(scratch / path.relative_to(directory))
    return word


def _show(directory: Path, scratch: Path, hidden: Path | None) -> None:
    """Link the content of ``directory`` into ``scratch``, except ``hidden`` within it."""
    first = hidden.parts[0] if hidden is not None else None
    last = hidden is not None and len(hidden.parts) == 1
    copied = 0
    for entry in sorted(directory.iterdir()):
        target = scratch / entry.name
        if entry.name == first and hidden is not None:
            if last:
                if entry.is_dir():
                    target.mkdir()
                continue
            target.mkdir()
            _show(entry, target, Path(*hidden.parts[1:]))
        elif entry.is_file() and _is_copied(entry, hidden if last else None):
            copied += entry.stat().st_size
            if copied > _COPIED_BYTES:
                raise BadInput(
                    f"{directory} has over 1 GiB of files that look like the checkpoint "
                    f"{hidden}; let the script save into a directory of its own",
                    field="checkpoint.path",
                )
            shutil.copy2(entry, target)
        else:
            target.symlink_to(entry)
    if hidden is not None and not last:
        # The directory does not exist yet, but the script may expect it.
        (scratch / hidden.parts[0]).mkdir(exist_ok=True)


def _is_copied(entry: Path, checkpoint: Path | None) -> bool:
    """Return True for files that must not be linked: scripts, and files named like a checkpoint."""
    if entry.suffix == ".py":
        return True
    return checkpoint is not None and bool(entry.suffix) and entry.suffix == checkpoint.suffix


def _expect_named(document: Mapping[str, Any], said: str) -> None:
    values = (document.get("environment") or {}).values()
    named = [*document.get("command", ()), *(value for value in values if isinstance(value, str))]
    if not any(said in word for word in named):
        raise BadInput(
            f"checkpoint.path {said} is neither below the job's directory nor named in the "
            "command, so the probe could overwrite it; pass it to the script as an option",
            field="checkpoint.path",
        )


def _state(path: Path) -> tuple[int, int] | None:
    """Return values that change when a file is written, or an entry is added to a directory."""
    try:
        known = path.stat()
    except OSError:
        return None
    return known.st_mtime_ns, known.st_size
