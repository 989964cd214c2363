"""Finds the launcher and its options in a container's command, also behind ``sh -c``.

The text of a shell command is parsed, never evaluated. A variable is replaced if the container's
own environment has a literal value for it. A word that still depends on a variable is ignored.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from pathlib import PurePosixPath

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh"})
_TORCHRUNS = frozenset({"torchrun", "dlrover-run", "brain-run"})
#: Commands that only mention programs in their words, and start none.
_TALKERS = frozenset(
    {"echo", "printf", "pip", "pip3", "which", "type", "export", "cd", "ls", "cat"}
)
_RUN, _LAUNCH = "torch.distributed.run", "torch.distributed.launch"
#: Launcher of each module that is one.
_MODULES = {
    _RUN: _RUN,
    _LAUNCH: _LAUNCH,
    "launcher.cli": "brain-run",
    "dlrover.trainer.torch.main": "dlrover-run",
}
#: Options of Python that take a value.
_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_PYTHON = re.compile(r"python[0-9.]*|pypy[0-9.]*")
_ENDS = re.compile(r"[;&|()\n]+")
_WHICH = re.compile(r"\$\(\s*(?:which|command\s+-v)\s+([^\s()]+)\s*\)|`\s*which\s+([^\s`]+)\s*`")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|\((\w+)\)|(\w+))")
#: Options of torchrun and dlrover-run that take no value; all others take one.
_FLAGS = frozenset(
    {
        "standalone",
        "no-python",
        "run-path",
        "module",
        "m",
        "network-check",
        "comm-perf-test",
        "auto-config",
        "auto-tunning",
        "exclude-straggler",
        "save-at-breakpoint",
        "numa-affinity",
        "use-env",
        "help",
        "h",
        "version",
    }
)


class LaunchKind(StrEnum):
    """Kinds of launch: what a container's command starts."""

    #: torchrun, dlrover-run, brain-run, ``python -m torch.distributed.run``.
    TORCHRUN = "torchrun"
    #: ``python -m torch.distributed.launch``.
    LAUNCH = "launch"
    #: ``python train.py``.
    PYTHON = "python"
    #: Unknown: the image's entry point, or a script of the shell.
    OPAQUE = "opaque"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The launch that a container's command starts."""

    kind: LaunchKind = LaunchKind.OPAQUE
    #: ``torchrun``, ``dlrover-run``, ``torch.distributed.launch``, ``python``; empty if opaque.
    program: str = ""
    #: The simple command, from the program on.
    words: tuple[str, ...] = ()
    #: True if the launch was found in the text of a shell.
    in_shell: bool = False
    #: The launcher's options, without leading dashes and with ``-`` for ``_`` inside.
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[int, int] | None:
        """Return ``--nnodes`` as minimum and maximum; None if the command has no numbers for it."""
        found = re.fullmatch(r"(\d+)(?::(\d+))?", self.options.get("nnodes", ""))
        if found is None or int(found[1]) < 1:
            return None
        return int(found[1]), int(found[2] or found[1])

    @property
    def processes(self) -> int | str | None:
        """Return ``--nproc-per-node``: a number, ``gpu``, ``cpu`` or ``auto``; None if the command
        lacks it.
        """
        said = self.options.get("nproc-per-node", "")
        if said.isdigit():
            return int(said) or None
        return said if said in ("gpu", "cpu", "auto") else None

    @property
    def unit(self) -> int | None:
        """Return ``--node_unit``, which may also be a part of ``--rdzv-conf``."""
        conf = dict(part.split("=", 1) for part in self._conf())
        said = self.options.get("node-unit") or conf.get("node_unit", "")
        return int(said) if said.isdigit() and int(said) > 0 else None

    @property
    def max_restarts(self) -> int | None:
        said = self.options.get("max-restarts", "")
        return int(said) if said.isdigit() else None

    @property
    def shutdown_timeout(self) -> float | None:
        said = self.options.get("shutdown-timeout", "")
        return float(said) if re.fullmatch(r"\d+(\.\d+)?", said) else None

    def _conf(self) -> Iterator[str]:
        parts = self.options.get("rdzv-conf", "").split(",")
        return (part.strip() for part in parts if "=" in part)


def launch_of(
    command: Sequence[str], args: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Launch:
    """Find the launch that ``command`` and ``args`` of a container start.

    >>> launch_of(["bash", "-c", "cd /x && dlrover-run --nnodes=1:10 train.py"]).nodes
    (1, 10)
    """
    found = list(_launches((*command, *args), environment or {}, in_shell=False))
    order = list(LaunchKind)
    best = min(found, key=lambda each: order.index(each.kind), default=Launch())
    # Of several scripts the last one trains: the earlier ones prepare.
    same = [each for each in found if each.kind is best.kind]
    return same[-1] if same else best


def _launches(
    words: Sequence[str], environment: Mapping[str, str], *, in_shell: bool
) -> Iterator[Launch]:
    text = _shell_text(words)
    if text is None:
        yield _launch(tuple(_filled(word, environment) for word in words), in_shell)
        return
    for simple in _simple_commands(text):
        yield from _launches(simple, environment, in_shell=True)


def _launch(words: tuple[str, ...], in_shell: bool) -> Launch:
    if not words or _base(words[0]) in _TALKERS:
        return Launch(in_shell=in_shell)
    for index, word in enumerate(words):
        rest, name = words[index + 1 :], _base(word)
        if name in _TORCHRUNS:
            found: tuple[str, Sequence[str]] | None = (name, rest)
        elif _PYTHON.fullmatch(name):
            found = _by_python(rest)
        else:
            continue
        if found is None:
            continue
        program, options = found
        kind = LaunchKind.PYTHON if program == "python" else LaunchKind.TORCHRUN
        return Launch(
            kind=LaunchKind.LAUNCH if program == _LAUNCH else kind,
            program=program,
            words=words[index:],
            in_shell=in_shell,
            options=_options(options),
        )
    return Launch(words=words, in_shell=in_shell)


def _by_python(words: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    """Return the program that an interpreter runs, and its arguments; None if no program trains.

    >>> _by_python(["-u", "-m", "torch.distributed.run", "--nnodes=2", "train.py"])
    ('torch.distributed.run', ['--nnodes=2', 'train.py'])
    """
    at = 0
    while at < len(words):
        word, rest = words[at], words[at + 1 :]
        if word.startswith("-m"):
            module, rest = (word[2:], rest) if word[2:] else ("".join(rest[:1]), rest[1:])
            program = _MODULES.get(module, "python")
            return None if module in ("pip", "venv") else (program, rest)
        if word.startswith("-c"):
            return "python", ()
        if not word.startswith("-"):
            return (_base(word), rest) if _base(word) in _TORCHRUNS else ("python", ())
        at += 2 if word in _WITH_VALUE else 1
    return None


def _options(words: Sequence[str]) -> dict[str, str]:
    """Return a launcher's own options: the words before the script."""
    found: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            break
        name, given, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-")
        if not given and name not in _FLAGS:
            value = next(rest, "")
        found[name] = value
    return found


def _shell_text(words: Sequence[str]) -> str | None:
    """Return the text that a shell runs with ``-c``; None if the command is no shell."""
    if not words or _base(words[0]) not in _SHELLS:
        return None
    for word, following in pairwise(words[1:]):
        if re.fullmatch(r"-[a-z]*c", word):
            return following
        if not word.startswith("-"):
            break
    return None


def _simple_commands(text: str) -> Iterator[tuple[str, ...]]:
    text = _WHICH.sub(lambda found: found[1] or found[2], text.replace("\\\n", " "))
    text = _VARIABLE.sub(lambda found: f"${{{found[1] or found[2] or found[3]}}}", text)
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    simple: list[str] = []
    try:
        for word in lexer:
            if not _ENDS.fullmatch(word):
                simple.append(word)
            elif simple:
                yield tuple(simple)
                simple = []
    except ValueError:
        # A quote that is never closed: the shell itself will say so.
        pass
    if simple:
        yield tuple(simple)


def _filled(word: str, environment: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        return environment.get(found[1] or found[2] or found[3], found[0])

    return _VARIABLE.sub(value, word)


def _base(word: str) -> str:
    return PurePosixPath(word).name
