"""The command line of ``brain-run``: every flag of the installed torchrun, dlrover-run's, and ours.

torch is not imported. What its torchrun takes is asked once of the interpreter that has it
(``ask_torch.py``), remembered per version in the user's cache, and shipped for the newest version
that was looked at (``torchrun_flags.json``), so that mostly nobody has to be asked.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from brain.errors import BadInput

_HERE = Path(__file__).parent
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
    #: Variable that gives the default; None where none does.
    environment: str | None = None
    help: str = ""
    #: False: understood, and without effect so far.
    built: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Torchrun:
    """The flags of one version of torchrun."""

    #: ``2.13`` for example.
    version: str
    flags: tuple[Flag, ...]
    #: What a person should know about this description; empty where it is exact.
    note: str = ""


def _switch(name: str, help: str, *, built: bool = True, alias: str = "") -> Flag:
    dest = name.lstrip("-").replace("-", "_")
    names = (name, alias) if alias else (name,)
    variable = f"PET_{dest.upper()}"
    return Flag(names=names, dest=dest, switch=True, environment=variable, help=help, built=built)


def _value(name: str, help: str, *, built: bool = True, alias: str = "", **more: Any) -> Flag:
    dest = name.lstrip("-").replace("-", "_")
    names = (name, alias) if alias else (name,)
    variable = more.pop("environment", f"PET_{dest.upper()}")
    return Flag(names=names, dest=dest, environment=variable, help=help, built=built, **more)


#: What dlrover-run 0.6 takes beyond torchrun.
DLROVER = (
    _value("--node_unit", "Replicas come and go in multiples of this.", type="int", default="1"),
    _value("--accelerator", "Name of the accelerator, as telemetry shall call it.", default=""),
    _switch("--network-check", "Check nodes before training.", built=False),
    _switch("--comm-perf-test", "Measure communication before training.", built=False),
    _value("--precheck", "0 none, 1 nodes, 2 communication too.", built=False, default="0"),
    _switch("--auto_config", "Choose nodes and processes by what is there.", built=False),
    _switch("--auto_tunning", "Tune batch size and data loader while it runs.", built=False),
    _switch("--exclude-straggler", "Leave out nodes that the check finds slow.", built=False),
    _switch("--save_at_breakpoint", "Keep the in-memory checkpoint of a failure.", built=False),
    _value("--training_port", "First port of NPU training.", built=False, default="60000"),
    _switch("--numa-affinity", "Bind workers to NUMA nodes.", built=False),
    _value("--membind-policy", "Memory policy of bound workers.", built=False, default="none"),
    _value("--ucp_device_type", "Device of universal checkpoints.", built=False, default="cpu"),
)

#: What only brain-run takes.
OURS = (
    _value("--brain", "URL of Brain; it then measures and advises.", environment="BRAIN_URL"),
    _value(
        "--brain-token-file", "File with Brain's token.", environment="BRAIN_TOKEN_FILE", default=""
    ),
    _value("--home", "State directory; default ~/.brain.", environment="BRAIN_HOME", default=""),
    _value("--job", "Name of the job; default is --rdzv-id.", environment=None, default=""),
    _value("--checkpoint", "Checkpoint that the script writes.", environment=None, default=""),
    _value("--checkpoint-every", "How often, as '90 s' or '200 steps'.", environment=None),
    _value("--checkpoint-signal", "Signal that makes it save and exit.", environment=None),
    Flag(
        names=("--no-probe",),
        dest="no_probe",
        switch=True,
        help="Do not look into the workers; BRAIN_PROBE=0 does the same.",
    ),
)

#: Flags of torchrun whose effect is not built yet, with the value that asks for nothing.
UNBUILT_TORCHRUN: Mapping[str, Any] = {
    "numa_binding": None,
    "event_log_handler": "null",
    "logs_specs": None,
}


class Parser(argparse.ArgumentParser):
    """Raises instead of leaving: a job document is no command line."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(message, field="command")


def parse(
    torchrun: Torchrun,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    prog: str = "brain-run",
) -> tuple[dict[str, Any], str, list[str]]:
    """Read a command line: the options by destination, the script, and the script's arguments.

    The script's arguments are never looked at: argparse would take ``--check`` of a script for an
    ambiguous ``--checkpoint…`` of ours.

    Raises:
        BadInput: a flag that is not known, or a value that cannot be used.
        SystemExit: it asked for help, which has been printed.
    """
    head, tail = split(arguments, torchrun)
    options = vars(parser(torchrun, environment, prog).parse_args([*head, *tail[:1]]))
    return options, options.pop("training_script"), list(tail[1:])


def parser(torchrun: Torchrun, environment: Mapping[str, str], prog: str = "brain-run") -> Parser:
    """The whole command line; ``environment`` gives the defaults of flags that were not said."""
    made = Parser(
        prog=prog,
        usage="%(prog)s [flags] script [argument …]",
        description="Runs a training script as torchrun does; its world can change while it runs.",
        epilog=torchrun.note or f"Flags of torchrun {torchrun.version}.",
        allow_abbrev=False,
    )
    groups = {"torchrun": torchrun.flags, "dlrover-run": DLROVER, "brain-run": OURS}
    for title, known in groups.items():
        group = made.add_argument_group(title)
        for flag in known:
            _add(group, flag, environment)
    made.add_argument("training_script", help="The script, or what -m and --no-python make of it.")
    return made


def split(arguments: Sequence[str], torchrun: Torchrun) -> tuple[list[str], list[str]]:
    """The launcher's words, their names in full, and from the script on the rest as it stands.

    >>> flags = Torchrun(version="0", flags=(Flag(names=("--tee",), dest="tee"),))
    >>> split(["--te", "3", "--exclude-straggler", "a.py", "--tee"], flags)
    (['--tee', '3', '--exclude-straggler'], ['a.py', '--tee'])
    """
    head: list[str] = []
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        word = arguments[at]
        if word == "--":
            return head, list(arguments[at + 1 :])
        name, equals, value = word.partition("=")
        flag, full = _flag(name, torchrun)
        head.append(full + equals + value)
        at += 1
        takes = flag is not None and not flag.switch and not equals
        if takes and at < len(arguments) and not arguments[at].startswith("-"):
            head.append(arguments[at])
            at += 1
    return head, list(arguments[at:])


def _flag(name: str, torchrun: Torchrun) -> tuple[Flag | None, str]:
    """The flag that a possibly shortened name means, and its name in full; torchrun's own short
    forms mean what they mean there, whatever else was added here."""
    everything = (*torchrun.flags, *DLROVER, *OURS)
    for flag in everything:
        if name in flag.names:
            return flag, name
    for known in (torchrun.flags, everything):
        if name.startswith("--"):
            near = [flag for flag in known if any(n.startswith(name) for n in flag.names)]
            if len(near) == 1:
                return near[0], next(n for n in near[0].names if n.startswith(name))
    return None, name


def warnings(options: Mapping[str, Any]) -> list[str]:
    """One sentence per flag that was given and has no effect yet."""
    given = {flag.names[0]: flag for flag in DLROVER if not flag.built}
    idle = [n for n, flag in given.items() if options.get(flag.dest, flag.default) != _idle(flag)]
    idle += [
        "--" + dest.replace("_", "-")
        for dest, nothing in UNBUILT_TORCHRUN.items()
        if options.get(dest, nothing) != nothing
    ]
    return [f"{name} is understood and has no effect yet" for name in idle]


def torchrun_of(interpreter: str, environment: Mapping[str, str]) -> Torchrun:
    """The torchrun flags of the torch that ``interpreter`` imports; the newest known ones, with a
    note that says so, where it has none or cannot be asked."""
    shipped = _read(_HERE / "torchrun_flags.json")
    version = torch_version(interpreter)
    if version == shipped.version:
        return shipped
    if version is None:
        return _noted(shipped, f"no torch beside {interpreter}")
    cached = _cache(environment) / f"torchrun-{version}.json"
    try:
        return _read(cached)
    except (OSError, ValueError, KeyError, TypeError):  # not there, or damaged: ask
        pass
    try:
        return _asked(interpreter, cached)
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as failed:
        return _noted(shipped, f"torch {version} could not be asked: {failed}")


def torch_version(interpreter: str) -> str | None:
    """``2.13`` where that torch is installed beside ``interpreter``; found by the names of
    directories, because importing torch takes a second."""
    prefix = Path(interpreter).parent.parent
    places = [Path(entry) for entry in sys.path] if interpreter == sys.executable else []
    places += prefix.glob("lib*/python3*/*-packages")
    found = (each for place in places for each in place.glob("torch-[0-9]*.dist-info"))
    names = [each.name.removeprefix("torch-").split(".") for each in found]
    return ".".join(names[0][:2]) if names else None


def _asked(interpreter: str, remember: Path) -> Torchrun:
    """What the interpreter's torch says, and from now on ``remember`` too."""
    command = [interpreter, str(_HERE / "ask_torch.py"), "flags"]
    said = subprocess.run(command, capture_output=True, timeout=_ASK_SECONDS, check=True)
    remember.parent.mkdir(parents=True, exist_ok=True)
    half = remember.with_name(f"{remember.name}.{os.getpid()}")
    half.write_bytes(said.stdout)
    known = _read(half)
    half.replace(remember)
    return known


def _read(path: Path) -> Torchrun:
    content = json.loads(path.read_text())
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
    return Torchrun(version=content["torch"], flags=flags)


def _noted(known: Torchrun, why: str) -> Torchrun:
    note = f"Flags of torchrun {known.version}, because {why}."
    return Torchrun(version=known.version, flags=known.flags, note=note)


def _cache(environment: Mapping[str, str]) -> Path:
    root = environment.get("XDG_CACHE_HOME") or os.path.join(
        environment.get("HOME") or os.path.expanduser("~"), ".cache"
    )
    return Path(root) / "elastic-brain"


def _add(group: argparse._ArgumentGroup, flag: Flag, environment: Mapping[str, str]) -> None:
    said = environment.get(flag.environment) if flag.environment else None
    shown = flag.help.replace("%", "%%")
    if flag.switch:
        group.add_argument(
            *flag.names,
            dest=flag.dest,
            action="store_true",
            default=_yes(flag, said),
            help=shown,
        )
        return
    kinds: Mapping[str, Any] = {"int": int, "float": float, "list": comma_separated}
    group.add_argument(
        *flag.names,
        dest=flag.dest,
        type=kinds.get(flag.type, str),
        default=flag.default if said is None else said,
        choices=flag.choices,
        metavar=None if flag.choices else flag.dest.upper(),
        help=shown,
    )


def comma_separated(value: str) -> list[str]:
    """Split at commas; two commas are one that does not split.

    >>> comma_separated("apple,or,,ange")
    ['apple', 'or,ange']
    """
    return [piece.replace("\0", ",") for piece in value.replace(",,", "\0").split(",")]


def _yes(flag: Flag, said: str | None) -> bool:
    try:
        return bool(int(said or "0"))
    except ValueError as bad:
        raise BadInput(f"{flag.environment}={said} must be 0 or 1", field=flag.environment) from bad


def _idle(flag: Flag) -> Any:
    return False if flag.switch else flag.default
