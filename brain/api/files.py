"""Reads files that a job document names (``fromFile``); they must be in the job's directory."""

import os
from pathlib import Path

from brain.errors import BadInput
from brain.types.document import JobDocument

#: Most bytes of an environment variable on Linux (MAX_ARG_STRLEN).
_MOST_BYTES = 128 * 1024


def directory_of(document: JobDocument) -> Path:
    """Return the directory in which a job on this machine runs."""
    return Path(document.directory) if document.directory else Path.home()


def check_below(directory: Path, path: str, *, field: str) -> None:
    """Raise for a path outside the job's directory; a relative path starts in this directory.

    Raises:
        BadInput: the path is outside the directory.
    """
    if not Path(os.path.normpath(directory / path)).is_relative_to(os.path.normpath(directory)):
        raise _elsewhere(directory, path, field)


def read_below(directory: Path, path: str, *, barred: Path, field: str) -> str:
    """Return the content of a file below ``directory``, without the newline at its end.

    The service may read more files than the submitter, who can create links in the directory. So
    the check uses the path that the kernel reports for the open file. ``barred`` is the service's
    state directory, whose files are refused.

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
