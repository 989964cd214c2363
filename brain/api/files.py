"""Files that a document names (``fromFile``); they must be inside the job's own directory."""

import os
from pathlib import Path

from brain.errors import BadInput
from brain.types.document import JobDocument

#: Longest value of an environment variable that Linux takes (MAX_ARG_STRLEN).
_MOST_BYTES = 128 * 1024


def directory_of(document: JobDocument) -> Path:
    """Return the directory in which a job of this machine runs."""
    return Path(document.directory) if document.directory else Path.home()


def check_below(directory: Path, path: str, *, field: str) -> None:
    """Raise for a path outside the job's directory, to which a relative path is resolved.

    Raises:
        BadInput: the path leads out of the directory.
    """
    if not Path(os.path.normpath(directory / path)).is_relative_to(os.path.normpath(directory)):
        raise _elsewhere(directory, path, field)


def read_below(directory: Path, path: str, *, barred: Path, field: str) -> str:
    """Read a file beneath ``directory``, without the newline at its end.

    The service may read more files than the submitter, who can put links in the directory. So the
    check uses the path that the kernel reports for the open file. ``barred`` is the service's state
    directory, of which nothing is read.

    Raises:
        BadInput: the file is missing, is not text, is too long, or lies outside ``directory``.
    """
    try:
        with open(os.open(directory / path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            real = Path(os.readlink(f"/proc/self/fd/{file.fileno()}"))
            if not real.is_relative_to(directory.resolve()) or real.is_relative_to(
                barred.resolve()
            ):
                raise _elsewhere(directory, path, field)
            value = file.read(_MOST_BYTES + 1).decode()
    except OSError as gone:
        raise BadInput(f"{field} {path}: {gone.strerror}", field=field) from gone
    except UnicodeDecodeError as binary:
        raise BadInput(
            f"{field} {path} is not UTF-8 text; save it as UTF-8", field=field
        ) from binary
    if len(value) > _MOST_BYTES:
        raise BadInput(
            f"{field} {path} has more than {_MOST_BYTES // 1024} KiB; give a smaller file",
            field=field,
        )
    return value.removesuffix("\n")


def _elsewhere(directory: Path, path: str, field: str) -> BadInput:
    return BadInput(
        f"{field} {path} is outside the job's directory {directory}, and Brain reads only "
        "files inside it; copy the file there, or submit from a directory that contains it",
        field=field,
    )
