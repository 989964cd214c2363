"""Paths under ``$BRAIN_HOME``, as docs/reference/protocols.md defines them."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brain.errors import BadInput
from brain.types.places import local_socket, probe_socket


@dataclass(frozen=True, slots=True)
class Home:
    """The state directory of one machine (``$BRAIN_HOME``), as an absolute path."""

    root: Path

    @classmethod
    def at(cls, given: str | None) -> "Home":
        """Return the given directory, else ``$BRAIN_HOME``, else ``~/.brain``."""
        chosen = given or os.environ.get("BRAIN_HOME") or "~/.brain"
        return cls(Path(chosen).expanduser().resolve())

    @property
    def collector(self) -> Path:
        """Return the directory of the collector's own files."""
        return self.root / "collector"

    @property
    def lock(self) -> Path:
        """Return the path of the lock that this machine's only collector holds."""
        return self.collector / "lock"

    @property
    def status(self) -> Path:
        """Return the path of the file to which the collector writes its status."""
        return self.collector / "status.json"

    @property
    def spool(self) -> Path:
        """Return the directory of samples that are not delivered yet."""
        return self.collector / "spool"

    @property
    def service(self) -> Path:
        """Return the path of the file with the service's address; it exists while Brain runs."""
        return self.root / "service.json"

    @property
    def replicas(self) -> Path:
        """Return the directory of replicas, which has a directory per job and replica."""
        return self.root / "replicas"

    @property
    def socket(self) -> Path:
        """Return the path of the socket to which probes send."""
        return Path(probe_socket(str(self.root), os.getuid()))

    @property
    def local_socket(self) -> Path:
        """Return the path of the real socket, for a state directory whose file system supports no
        sockets.
        """
        return Path(local_socket(str(self.socket), str(self.root), os.getuid()))

    def token(self, job: str) -> str:
        """Return the job's token; an empty string if it has none."""
        try:
            return (self.replicas / job / "token").read_text().strip()
        except OSError:
            return ""

    def service_url(self) -> str | None:
        """Return the URL of this machine's service; None while it does not run."""
        try:
            url = read_json(self.service).get("url")
        except (OSError, BadInput):
            return None
        return url if isinstance(url, str) else None


def read_json(path: Path) -> dict[str, Any]:
    """Read a file that another program writes.

    Raises:
        BadInput: the file does not contain a JSON object.
        OSError: the file cannot be read.
    """
    try:
        found = json.loads(path.read_text())
    except ValueError as bad:
        raise BadInput(f"{path}: not JSON: {bad}") from bad
    if not isinstance(found, dict):
        raise BadInput(f"{path}: {type(found).__name__} instead of an object")
    return found


def write_json(path: Path, value: object) -> None:
    """Write a file atomically: readers see either the old or the new content."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w") as file:
        json.dump(value, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def make_private(directory: Path) -> None:
    """Create a directory that only this user may enter.

    Raises:
        BadInput: the directory belongs to another user.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    seen = directory.lstat()
    if seen.st_uid != os.getuid() or not directory.is_dir() or directory.is_symlink():
        raise BadInput(
            f"{directory} belongs to user {seen.st_uid}; remove it, or set BRAIN_HOME to a "
            "directory of yours"
        )
