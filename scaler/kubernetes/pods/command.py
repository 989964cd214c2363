"""Finds out which program a container's command starts, as far as this is possible without the
image.

A command behind ``sh -c`` is parsed if it consists of directories, exported variables and one
simple command. A shell runs every other command.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache

from scaler.kubernetes.kinds.documents.commands import LaunchKind, launch_of


class ContainerEntry(StrEnum):
    """Kinds of entry points, each of which needs a different environment."""

    #: ``brain-run`` and ``dlrover-run``: our own launchers.
    OURS = "brain-run"
    TORCHRUN = "torchrun"
    #: ``python -m torch.distributed.launch``: of fixed size, with its node's rank as an argument.
    LAUNCH = "torch.distributed.launch"
    #: ``python train.py``: one process.
    PYTHON = "python"
    #: The image's entry point, or an unknown program.
    OPAQUE = "opaque"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerCommand:
    """A container's command, parsed into its entry point, arguments and directory."""

    entry: ContainerEntry
    #: The program and its arguments, without a removable shell; empty for the image's own.
    argv: tuple[str, ...] = ()
    #: True if a shell has to run the command: pipes, substitutions, more than one command.
    shell: bool = False
    #: Directory of a leading ``cd``.
    directory: str | None = None
    #: Variables that are set before the command.
    exports: Mapping[str, str] = field(default_factory=dict)


_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_OURS = frozenset({"brain-run", "dlrover-run"})
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
#: With any of these characters a shell may do more than the operator would.
_SHELL_ONLY = re.compile(r"[$`*?\[~{}#!]")


def read_command(command: Sequence[str], args: Sequence[str] = ()) -> ContainerCommand:
    """Parse ``command`` and ``args`` of a container.

    >>> read_command(["/bin/bash", "-c", "cd /src && dlrover-run --nnodes=1:4 train.py"]).directory
    '/src'
    """
    if not command:
        # The arguments of the image's own entry point do not reveal its program.
        return ContainerCommand(entry=ContainerEntry.OPAQUE)
    return _read((*command, *args))


@lru_cache(maxsize=4096)
def _read(words: tuple[str, ...]) -> ContainerCommand:
    text = _script(words)
    if text is None:
        return _understood(ContainerCommand(entry=ContainerEntry.OPAQUE, argv=words))
    return _split(text) or _in_shell(words, text)


def _script(words: Sequence[str]) -> str | None:
    """Return the text behind ``sh -c``; None if the command does not start with a shell."""
    if words[0].rpartition("/")[2] not in _SHELLS:
        return None
    for at, word in enumerate(words[1:], start=1):
        if not word.startswith("-"):
            return None
        if word[1:2] != "-" and "c" in word[1:] and at + 1 < len(words):
            # Arguments after the text are $0, $1 …: only a shell knows how to use them.
            return words[at + 1] if at + 2 == len(words) else None
    return None


def _split(text: str) -> ContainerCommand | None:
    """Return the only simple command of a script; None if a shell has to run the script."""
    steps = None if _SHELL_ONLY.search(text) else _steps(text)
    if not steps:
        return None
    directory, exports = None, dict[str, str]()
    *before, last = steps
    for step in before:
        if step[0] == "cd" and len(step) == 2 and (step[1].startswith("/") or directory is None):
            directory = step[1]
        elif step[0] == "export" and all(map(_ASSIGNMENT.fullmatch, step[1:])):
            exports |= _assignments(step[1:])
        elif step[0] != "set":
            return None
    while last and _ASSIGNMENT.fullmatch(last[0]):
        exports |= _assignments(last[:1])
        last = last[1:]
    last = last[1:] if last[:1] == ["exec"] else last
    if not last:
        return None
    known = ContainerCommand(
        entry=ContainerEntry.OPAQUE, argv=tuple(last), directory=directory, exports=exports
    )
    return _understood(known)


def _in_shell(words: Sequence[str], text: str) -> ContainerCommand:
    """Classify a script by its first step that looks like a launcher; a shell runs it unchanged."""
    for step in _steps(text) or ():
        while step and _ASSIGNMENT.fullmatch(step[0]):
            step = step[1:]
        found = _understood(ContainerCommand(entry=ContainerEntry.OPAQUE, argv=tuple(step)))
        if found.entry is not ContainerEntry.OPAQUE:
            return replace(found, argv=tuple(words), shell=True)
    return ContainerCommand(entry=ContainerEntry.OPAQUE, argv=tuple(words), shell=True)


def _steps(text: str) -> list[list[str]] | None:
    """Return each command's words; None if other operators than ``&&``, ``;`` and line ends join
    them.
    """
    lines = text.replace("\\\n", " ").strip().strip(";").replace("\n", " ; ")
    lexer = shlex.shlex(lines, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:
        return None
    steps: list[list[str]] = [[]]
    for word in words:
        if word in ("&&", ";"):
            steps.append([])
        elif word and set(word) <= set("();<>|&"):
            return None
        else:
            steps[-1].append(word)
    return [step for step in steps if step]


def _assignments(words: Sequence[str]) -> dict[str, str]:
    found = (_ASSIGNMENT.fullmatch(word) for word in words)
    return {each[1]: each[2] for each in found if each}


def _understood(command: ContainerCommand) -> ContainerCommand:
    return replace(command, entry=_entry(command.argv))


def _entry(argv: Sequence[str]) -> ContainerEntry:
    """Return the kind of a simple command; a program in front of a launcher makes it opaque."""
    launch = launch_of(argv)
    if len(launch.words) != len(argv):
        return ContainerEntry.OPAQUE
    match launch.kind:
        case LaunchKind.TORCHRUN:
            return ContainerEntry.OURS if launch.program in _OURS else ContainerEntry.TORCHRUN
        case LaunchKind.LAUNCH:
            return ContainerEntry.LAUNCH
        case LaunchKind.PYTHON:
            return ContainerEntry.PYTHON
        case LaunchKind.OPAQUE:
            return ContainerEntry.OPAQUE
