"""Parses a Python command as the interpreter does, so that a fork can run it."""

import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

#: Options that only set something, alone or in a cluster (``-uO``).
_SWITCHES = frozenset("bBdEIOPqRsSuv")
_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})
#: Settings that libraries read once, as they are imported; a script that makes them itself does so
#: before its imports.
_NAME = rb"""["']?(?:OMP|MKL|KMP|GOMP|OPENBLAS|NUMEXPR|TORCH|PYTORCH)_[A-Z0-9_]+"""
_SETS = re.compile(
    rb"environ\s*\[\s*" + _NAME + rb"""["']\s*\]\s*=(?!=)|(?:setdefault|putenv)\(\s*""" + _NAME
)
_SETS_MANY = re.compile(rb"environ\s*(?:\.update\(|\|=)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonCommand:
    """One worker's command, parsed."""

    kind: Literal["script", "module", "command"]
    #: Options of the interpreter, in order.
    options: tuple[str, ...]
    #: Path of a script, name of a module, or the code itself.
    target: str
    arguments: tuple[str, ...]


def read(argv: Sequence[str]) -> PythonCommand | None:
    """Return the parts of ``python …``; None for options that no fork can serve (``-``, ``-i``).

    >>> read(["python", "-u", "-W", "error", "train.py", "--lr", "1"]).arguments
    ('--lr', '1')
    >>> read(["python", "-um", "pkg.train"]).options
    ('-u',)
    >>> read(["python", "-i", "train.py"])
    """
    options: list[str] = []
    rest = list(argv[1:])
    while rest:
        word = rest.pop(0)
        if word in _WITH_VALUE:
            if not rest:
                return None
            options += [word, rest.pop(0)]
        elif word.startswith(("-W", "-X")):
            options.append(word)
        elif not word.startswith("-"):
            return PythonCommand(
                kind="script", options=tuple(options), target=word, arguments=tuple(rest)
            )
        else:
            ended = _cluster(word, rest, options)
            if ended is not True:
                return ended
    return None


def _cluster(
    word: str, rest: list[str], options: list[str]
) -> PythonCommand | Literal[True] | None:
    """Read ``-xyz``: True if options follow, None if the word cannot be parsed."""
    for at, letter in enumerate(word[1:], 1):
        if letter in "mc":
            if at > 1:
                options.append(word[:at])
            value = word[at + 1 :] or (rest.pop(0) if rest else "")
            kind: Literal["module", "command"] = "module" if letter == "m" else "command"
            return PythonCommand(
                kind=kind, options=tuple(options), target=value, arguments=tuple(rest)
            )
        if letter not in _SWITCHES:
            return None
    if len(word) == 1:
        return None
    options.append(word)
    return True


def identity(command: PythonCommand, directory: str) -> tuple[str, ...]:
    """Return a key that identifies a command in several runs.

    The key contains neither directory nor arguments, since a script's imports do not depend on
    them.
    """
    if command.kind == "script":
        return (*command.options, os.path.abspath(os.path.join(directory, command.target)))
    return (*command.options, command.kind, directory, command.target)


def first_path(
    command: PythonCommand, directory: str, environment: Mapping[str, str]
) -> str | None:
    """Return the directory that the script's imports search first; None if they search only
    libraries.

    >>> module = PythonCommand(kind="module", options=("-u",), target="a", arguments=())
    >>> script = PythonCommand(kind="script", options=("-P",), target="a.py", arguments=())
    >>> first_path(module, "/job", {})
    '/job'
    >>> first_path(script, "/", {})
    """
    letters = "".join(each for each in command.options if not each.startswith(("-W", "-X", "--")))
    isolated = "I" in letters or "E" in letters
    if "I" in letters or "P" in letters or (not isolated and environment.get("PYTHONSAFEPATH")):
        return None
    if command.kind != "script":
        return directory
    path = os.path.realpath(os.path.join(directory, command.target))
    # Who reads a pipe takes its text away from the script.
    archive = os.path.isfile(path) and zipfile.is_zipfile(path)
    return path if os.path.isdir(path) or archive else os.path.dirname(path)


def has_modules(directory: str | None, names: Sequence[str]) -> bool:
    """True if a directory contains any of the modules ``names``."""
    places = [Path(directory, name) for name in names] if directory else []
    return any(
        list(path.parent.glob(path.name + ".*")) or list(path.glob("__init__.*")) for path in places
    )


def source_of(command: PythonCommand, directory: str) -> bytes | None:
    """Return the script's text if it is in the job's own directory; else None. The text of a pipe
    counts as empty, because only the script can read it.
    """
    if command.kind == "command":
        return os.fsencode(command.target)
    base = Path(directory, command.target)
    if command.kind == "module":
        base = Path(directory, *command.target.split("."))
    candidates = [base, base.with_name(base.name + ".py"), base / "__main__.py"]
    for path in candidates:
        if path.exists() and not (path.is_file() or path.is_dir()):
            return b""
        try:
            return path.read_bytes()
        except OSError:
            continue
    return None


def wants_torch(source: bytes | None) -> bool:
    """True if importing torch ahead is useful and safe: the script names torch, and makes no
    setting that torch reads at its import. A script without readable text is assumed to use torch.
    """
    if source is None:
        return True
    many = _SETS_MANY.search(source) and re.search(_NAME, source)
    return b"torch" in source and not (many or _SETS.search(source))
