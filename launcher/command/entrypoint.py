"""Parse a job's command into the argument vector of one worker process.

A job's command may begin with a launcher (``torchrun``, ``brain-run``, ``dlrover-run``, ``python -m
torch.distributed.run``): then this module parses the launcher's flags, and workers run the rest.
The command may also be ``python script …`` or ``python -m module …``; any other command runs
unchanged.
"""

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brain.errors import BadInput
from launcher.command import flags
from launcher.command.torchrun import description

LAUNCHERS = frozenset({"torchrun", "brain-run", "dlrover-run"})
_LAUNCHER_MODULES = frozenset({"torch.distributed.run", "launcher.cli"})
_PYTHON = re.compile(r"(python|pypy)[0-9.]*$")
#: Options of Python that take a value of their own.
_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})
#: Code that does what ``--run-path`` means, in one interpreter.
_RUN_PATH = (
    "import os, runpy, sys; sys.path[0] = os.getcwd(); sys.argv = sys.argv[1:]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrypoint:
    """One worker's command, and the flags of the launcher in front of it."""

    #: The program, as a path or a name on PATH, and its arguments.
    argv: tuple[str, ...]
    #: The name that a person uses: the script's path, ``-m module``, or the program.
    name: str
    #: True if it is a Python interpreter, so that the probe can load.
    python: bool
    #: The Python that has the job's torch, as far as that can be known; absolute.
    interpreter: str
    #: Flags of torchrun, brain-run or dlrover-run that stood in the command, by destination;
    #: empty for a plain command.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: A note for the user about how the flags were read; empty if they were read exactly.
    note: str = ""


def parse_command(
    argv: Sequence[str], environment: Mapping[str, str], directory: str | None = None
) -> Entrypoint:
    """Parse the command of a job document as if it ran in ``directory``.

    Raises:
        BadInput: there is no command, a program or script does not exist (the message names its
        path and the directory), or the launcher does not know a flag.
    """
    place = os.path.abspath(directory or os.getcwd())
    if not argv:
        raise BadInput("command is empty; give the program to run", field="command")
    try:
        return _parse(argv, environment, place)
    except SystemExit as helped:
        raise BadInput("command: --help runs no script; drop it", field="command") from helped


def _parse(argv: Sequence[str], environment: Mapping[str, str], place: str) -> Entrypoint:
    program, *rest = argv
    if os.path.basename(program) in LAUNCHERS:
        found = _find(program, environment, place, or_beside_us=True)
        interpreter = environment.get("PYTHON_EXEC") or _interpreter_of(found)
        return launched(interpreter, rest, environment, place, prog=os.path.basename(program))
    if _PYTHON.match(os.path.basename(program)):
        return _python(_find(program, environment, place), rest, environment, place)
    _find(program, environment, place)
    return Entrypoint(
        argv=(program, *rest), name=_shown(program), python=False, interpreter=sys.executable
    )


def launched(
    interpreter: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    directory: str,
    *,
    prog: str = "brain-run",
) -> Entrypoint:
    """Parse the arguments after a launcher: its flags as ``options``, and the command of a worker.

    Raises:
        BadInput: there is no worker command, a program or script does not exist, or the launcher
            does not know a flag.
    """
    known = description.torchrun_of(interpreter, environment)
    options, script, rest = flags.parse(known, arguments, environment, prog)
    _check(script, options, environment, directory)
    notes = [known.note, *(flags.strange(known, options) if known.digest else ())]
    if options.get("run_path"):
        before: tuple[str, ...] = (interpreter, "-c", _RUN_PATH)
    elif options.get("no_python"):
        before = ()
    else:
        before = (interpreter, "-u", "-m") if options.get("module") else (interpreter, "-u")
    return Entrypoint(
        argv=(*before, script, *rest),
        name=f"-m {script}" if options.get("module") else _shown(script),
        python=bool(before),
        interpreter=interpreter,
        options=options,
        # A job whose program is not Python may need no torch.
        note="; ".join(filter(None, notes)) if before else "",
    )


def _check(
    script: str, options: Mapping[str, Any], environment: Mapping[str, str], directory: str
) -> None:
    """Refuse a command that would fail in every worker."""
    if options.get("no_python") and not options.get("run_path"):
        if options.get("module"):
            raise BadInput(
                "--no-python and --module exclude each other; drop one of them", field="command"
            )
        _find(script, environment, directory)
    elif not options.get("module") and script != "-":
        _exists(script, directory)


def _python(
    interpreter: str, arguments: list[str], environment: Mapping[str, str], directory: str
) -> Entrypoint:
    """Parse ``python [options] (-m module | -c code | script) …``."""
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if word.startswith("-m"):
            module, after = (word[2:], at + 1) if word[2:] else (_next(arguments, at), at + 2)
            if module in _LAUNCHER_MODULES:
                return launched(interpreter, arguments[after:], environment, directory, prog=module)
            return _run(interpreter, arguments, f"-m {module}")
        if word.startswith("-c") or word == "-":
            return _run(interpreter, arguments, word[:2])
        if not word.startswith("-"):
            _exists(word, directory)
            if os.path.basename(word) in LAUNCHERS:
                return launched(interpreter, arguments[at + 1 :], environment, directory)
            return _run(interpreter, arguments, word)
        at += 2 if word in _WITH_VALUE else 1
    raise BadInput(
        "command: python without a script would wait for input; give a script", field="command"
    )


def _run(interpreter: str, arguments: list[str], name: str) -> Entrypoint:
    # Unbuffered, as under torchrun: a worker's output shall appear when it is printed.
    return Entrypoint(
        argv=(interpreter, "-u", *arguments),
        name=_shown(name),
        python=True,
        interpreter=interpreter,
    )


def _shown(name: str) -> str:
    """Return a file name, which may be no valid UTF-8, in a form that agents can send to one
    another.
    """
    return os.fsencode(name).decode(errors="replace")


def _next(arguments: list[str], at: int) -> str:
    if at + 1 == len(arguments):
        raise BadInput("command: -m needs the name of a module; give one", field="command")
    return arguments[at + 1]


def _exists(script: str, directory: str) -> None:
    if not os.path.exists(os.path.join(directory, script)):
        raise BadInput(
            f"command: {script} does not exist in {directory}; give a path that is relative to "
            "that directory, or an absolute one",
            field="command",
        )


def _find(
    program: str, environment: Mapping[str, str], directory: str, *, or_beside_us: bool = False
) -> str:
    """Return the program's absolute path; a path is relative to ``directory``, a name is looked up
    on PATH.
    """
    if os.sep in program:
        path = os.path.join(directory, program)
        if not os.path.exists(path):
            _exists(program, directory)
        if not os.access(path, os.X_OK) or os.path.isdir(path):
            raise BadInput(
                f"command: {program} in {directory} is not executable; chmod +x it, or put its "
                "interpreter in front",
                field="command",
            )
        return path
    places = environment.get("PATH", os.defpath)
    if or_beside_us:
        places += os.pathsep + os.path.dirname(sys.executable)
    found = shutil.which(program, path=places)
    if found is None and or_beside_us:
        return sys.executable
    if found is None:
        raise BadInput(
            f"command: {program} is not on PATH ({places}); install it or give its path",
            field="command",
        )
    return os.path.abspath(found)


def _interpreter_of(script: str) -> str:
    """Return the Python that an installed console script names in its first lines; else this
    process's.
    """
    if script == sys.executable:
        return script
    with open(script, "rb") as file:
        head = file.read(512).decode(errors="replace")
    # ``#!/path/python``, or pip's ``'''exec' "/path/python"`` where that would be too long.
    for candidate in re.findall(r"(?:^#!\s*|exec' \"?)(/[^\s\"]+)", head):
        if _PYTHON.match(os.path.basename(candidate)):
            return str(candidate)
    beside = Path(script).parent / "python3"
    return str(beside) if beside.exists() else sys.executable
