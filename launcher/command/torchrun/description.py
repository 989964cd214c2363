"""Describe the flags of an installed torch's torchrun, without importing torch.

``ask_torch.py`` runs once under the interpreter that has torch. The result is cached under the
digest of torchrun's sources, because two builds of one version may have different flags, and two
versions may have the same flags. ``flags.json`` has the result for the newest supported version, so
most runs need not start the workers' interpreter.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from launcher.command.torchrun import ask_torch

_HERE = Path(__file__).parent
#: Run by path, under the interpreter that has the torch to ask.
ASK_TORCH = _HERE / "ask_torch.py"
_ASK_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One option of a command line."""

    names: tuple[str, ...]
    dest: str
    #: True: takes no value.
    switch: bool = False
    #: ``str``, ``int``, ``float``, or ``list`` for values split at commas.
    type: str = "str"
    default: Any = None
    choices: tuple[str, ...] | None = None
    #: Variable that gives the default; None if there is none.
    environment: str | None = None
    help: str = ""
    #: Why it has no effect, for a user who gives it; empty if it has its effect.
    idle: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Torchrun:
    """The flags of one version of torchrun."""

    #: ``2.13.0`` or ``2.14.0.dev20261101+cpu`` for example.
    version: str
    flags: tuple[Flag, ...]
    #: ``ask_torch.digest`` of the torch that was asked; empty if not known.
    digest: str = ""
    #: A note for the user about this description; empty if it is exact.
    note: str = ""


def shipped() -> Torchrun:
    """Return the flags of the newest supported torchrun."""
    return _read((_HERE / "flags.json").read_bytes())


def torchrun_of(interpreter: str, environment: Mapping[str, str]) -> Torchrun:
    """Return the torchrun flags of the torch that ``interpreter`` imports. If it has no torch or
    cannot be run, return the newest known flags, with a note.
    """
    newest = shipped()
    torch = installed_torch(interpreter)
    if torch is None:
        return _noted(newest, f"no torch was found for {interpreter}")
    if torch.digest and torch.digest == newest.digest:
        return newest
    cached = _cache(environment) / f"torchrun-{torch.digest[:32] or torch.version}.json"
    try:
        return _read(cached.read_bytes())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # not there, or damaged: ask
    try:
        said = _ask(interpreter)
        known = _read(said)
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as failed:
        return _noted(newest, f"torch {torch.version} did not answer: {failed}")
    _remember(cached, said)
    return known


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An installed torch: its version, and the digest of the sources of its torchrun."""

    version: str
    digest: str


def installed_torch(interpreter: str) -> Installed | None:
    """Return the torch that ``interpreter`` would import; None if there is none. Torch is found by
    the names of directories, because importing it takes a second.
    """
    prefix = Path(interpreter).parent.parent
    places = [Path(entry) for entry in sys.path] if interpreter == sys.executable else []
    places += prefix.glob("lib*/python3*/*-packages")
    for place in places:
        for found in sorted(place.glob("torch-[0-9]*.dist-info"), reverse=True):
            version = found.name.removeprefix("torch-").removesuffix(".dist-info")
            return Installed(version=version, digest=ask_torch.digest(str(place / "torch")))
    return None


def _ask(interpreter: str) -> bytes:
    command = [interpreter, str(ASK_TORCH), "flags"]
    return subprocess.run(command, capture_output=True, timeout=_ASK_SECONDS, check=True).stdout


def _remember(path: Path, said: bytes) -> None:
    """Cache an answer atomically: agents that start at the same time write the same file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, half = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError:  # no home, a full disk: it is asked again the next time
        return
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(said)
        os.replace(half, path)
    except OSError:
        Path(half).unlink(missing_ok=True)


def _read(said: bytes) -> Torchrun:
    content = json.loads(said)
    flags = tuple(
        Flag(
            names=tuple(each["names"]),
            dest=each["dest"],
            switch=each["kind"] == "switch",
            type=each["type"],
            default=each["default"],
            choices=tuple(each["choices"]) if each["choices"] else None,
            environment=each["environment"],
            help=each["help"],
        )
        for each in content["flags"]
    )
    if not flags:
        raise ValueError("it has no flags")
    version, digest = content["torch"], content.get("digest", "")
    return Torchrun(version=version, flags=flags, digest=digest)


def _noted(known: Torchrun, why: str) -> Torchrun:
    note = f"These are the flags of torchrun {known.version}, because {why}."
    return replace(known, note=note)


def _cache(environment: Mapping[str, str]) -> Path:
    root = environment.get("XDG_CACHE_HOME") or os.path.join(
        environment.get("HOME") or os.path.expanduser("~"), ".cache"
    )
    return Path(root) / "elastic-brain"
