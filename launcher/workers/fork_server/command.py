"""Parses a Python command as the interpreter does, so that a fork can run it."""

import os
import re
import sys
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
    letters = _letters(command)
    if letters & {"I", "P"} or _variable("PYTHONSAFEPATH", command, environment):
        return None
    if command.kind != "script":
        return directory
    path = os.path.realpath(os.path.join(directory, command.target))
    # Who reads a pipe takes its text away from the script.
    archive = os.path.isfile(path) and zipfile.is_zipfile(path)
    return path if os.path.isdir(path) or archive else os.path.dirname(path)


def search_path(
    command: PythonCommand, python: str, directory: str, environment: Mapping[str, str]
) -> list[str]:
    """Return the directories in which ``python`` searches the modules of a command, as far as they
    are known without running it.

    >>> module = PythonCommand(kind="module", options=("-E",), target="a", arguments=())
    >>> search_path(module, "/none/bin/python", "/job", {"PYTHONPATH": "/mine"})
    ['/job']
    """
    first = first_path(command, directory, environment)
    given = _variable("PYTHONPATH", command, environment).split(os.pathsep)
    own = [os.path.join(directory, each) for each in given if each]
    prefix = Path(python).parent.parent
    libraries = sys.path if python == sys.executable else map(str, prefix.glob("lib*/python3*"))
    packages = map(str, prefix.glob("lib*/python3*/*-packages"))
    return [each for each in [first, *own, *libraries, *packages] if each]


def _letters(command: PythonCommand) -> set[str]:
    return {
        letter
        for option in command.options
        if option.startswith("-") and not option.startswith(("-W", "-X", "--"))
        for letter in option
    }


def _variable(name: str, command: PythonCommand, environment: Mapping[str, str]) -> str:
    """Return a variable of the interpreter; empty if its options let it ignore variables."""
    return "" if _letters(command) & {"I", "E"} else environment.get(name, "")


def has_modules(directory: str | None, names: Sequence[str]) -> bool:
    """True if a directory contains any of the modules ``names``."""
    places = [Path(directory, name) for name in names] if directory else []
    return any(
        list(path.parent.glob(path.name + ".*")) or list(path.glob("__init__.*")) for path in places
    )


def source_of(command: PythonCommand, directory: str, places: Sequence[str] = ()) -> bytes | None:
    """Return the text that a command runs; None if it is unknown. The text of a pipe counts as
    empty, because only the script can read it.

    ``places`` are the directories in which modules are searched.
    """
    if command.kind == "command":
        return os.fsencode(command.target)
    if command.kind == "module":
        return _module_source(command.target, places)
    base = Path(directory, command.target)
    for path in (base, base / "__main__.py"):
        if path.exists() and not (path.is_file() or path.is_dir()):
            return b""
        try:
            return path.read_bytes()
        except OSError:
            continue
    return None


def _module_source(name: str, places: Sequence[str]) -> bytes | None:
    """Return the text of a module, after the texts of its packages, which run before it.

    Nothing is imported, because that would run the packages here.
    """
    texts = []
    for part in (*name.split("."), "__main__"):
        tails = (os.path.join(part, "__init__.py"), part + ".py")
        files = (os.path.join(place, tail) for place in places for tail in tails)
        if (found := next(filter(os.path.isfile, files), None)) is None:
            # A namespace package, perhaps.
            places = list(filter(os.path.isdir, (os.path.join(place, part) for place in places)))
            continue
        try:
            texts.append(Path(found).read_bytes())
        except OSError:
            return None
        if not found.endswith(tails[0]):
            return b"\n".join(texts)
        places = [os.path.dirname(found)]
    return None


def wants_torch(source: bytes | None) -> bool:
    """True if importing torch ahead is useful and safe: the script names torch, and makes no
    setting that torch reads at its import. A script without readable text is assumed to use torch.
    """
    if source is None:
        return True
    many = _SETS_MANY.search(source) and re.search(_NAME, source)
    return b"torch" in source and not (many or _SETS.search(source))
