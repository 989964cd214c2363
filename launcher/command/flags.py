"""The command line of ``brain-run``: flags of the installed torchrun, flags of dlrover-run, and
flags that only ``brain-run`` has.

This module does not import torch: ``torchrun.description`` has the flags of the installed torchrun.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from brain.errors import BadInput
from launcher.command.torchrun.description import Flag, Torchrun, shipped


def _switch(name: str, help: str, *, idle: str = "", alias: str = "") -> Flag:
    dest = name.lstrip("-").replace("-", "_")
    names = (name, alias) if alias else (name,)
    variable = f"PET_{dest.upper()}"
    return Flag(names=names, dest=dest, switch=True, environment=variable, help=help, idle=idle)


def _value(name: str, help: str, *, idle: str = "", alias: str = "", **more: Any) -> Flag:
    dest = name.lstrip("-").replace("-", "_")
    names = (name, alias) if alias else (name,)
    variable = more.pop("environment", f"PET_{dest.upper()}")
    return Flag(names=names, dest=dest, environment=variable, help=help, idle=idle, **more)


#: Values of ``--accelerator`` in dlrover-run 0.6.1; brain-run takes any name.
ACCELERATORS = ("nvidia.com/gpu", "ascend-npu", "mthreads.com/gpu")

#: Flags of dlrover-run 0.6.1 beyond torchrun's, in both of their spellings.
DLROVER = (
    _value(
        "--node_unit",
        "Number of replicas that are added or removed together.",
        alias="--node-unit",
        type="int",
        default="1",
    ),
    _value("--accelerator", "Name of the accelerator in telemetry.", default=""),
    _switch(
        "--network-check",
        "Check the nodes in pairs before training, and leave out nodes that fail.",
        alias="--network_check",
    ),
    _switch(
        "--comm-perf-test",
        "Like --network-check, and also print how fast the nodes communicate.",
        alias="--comm_perf_test",
    ),
    _value(
        "--precheck",
        "0 none, 1 as --network-check, 2 as --comm-perf-test.",
        default="0",
        choices=("0", "1", "2"),
    ),
    _switch(
        "--exclude-straggler",
        "Also leave out nodes that the check finds slow.",
        alias="--exclude_straggler",
    ),
    _switch(
        "--auto_config",
        "Take the number of nodes from NODE_NUM, and of workers from this machine's devices.",
        alias="--auto-config",
    ),
    _switch(
        "--save_at_breakpoint",
        "Write the RAM checkpoint to storage when a worker fails.",
        alias="--save-at-breakpoint",
    ),
    _switch(
        "--numa-affinity",
        "The same as --numa-binding=node.",
        alias="--numa_affinity",
    ),
    _switch(
        "--auto_tunning",
        "Let Brain tune the batch size.",
        idle="has no effect in a job started by hand: Brain tunes only jobs that it runs",
        alias="--auto-tunning",
    ),
    _value(
        "--training_port",
        "First port for NPU training.",
        idle="is for Ascend devices, on which brain-run has not been tested",
        alias="--training-port",
        default="60000",
    ),
    _value(
        "--membind-policy",
        "Memory policy of bound workers.",
        idle="has no effect: workers are bound to CPUs, and Linux places their memory nearby",
        default="none",
    ),
    _value(
        "--ucp_device_type",
        "Device of universal checkpoints.",
        idle="has no effect: brain-run never converts checkpoints",
        default="cpu",
    ),
)

#: Flags that only brain-run has.
OURS = (
    _value(
        "--brain",
        "URL of Brain, which then measures the job and gives advice.",
        environment="BRAIN_URL",
    ),
    _value(
        "--brain-token-file", "File with Brain's token.", environment="BRAIN_TOKEN_FILE", default=""
    ),
    _value("--home", "State directory; default ~/.brain.", environment="BRAIN_HOME", default=""),
    _value("--job", "Name of the job; default is --rdzv-id.", environment=None, default=""),
    _value("--checkpoint", "Checkpoint that the script writes.", environment=None, default=""),
    _value(
        "--checkpoint-every",
        "How often the script saves, for example '90 s' or '200 steps'.",
        environment=None,
    ),
    _value("--checkpoint-signal", "Signal that makes the script save and exit.", environment=None),
    Flag(
        names=("--memory-checkpoint",),
        dest="memory_checkpoint",
        switch=True,
        environment="BRAIN_MEMORY_CHECKPOINT",
        help="torch.save returns once the file is in memory; the agent then writes it to storage.",
    ),
    _value(
        "--straggler-ratio",
        "A node is slow if its step takes this many times as long as other nodes' steps.",
        environment=None,
        type="float",
        default="1.15",
    ),
    _value(
        "--hang-seconds",
        "Seconds without a sign of life after which a world counts as hanging; 0 turns the check "
        "off.",
        environment="BRAIN_HANG_SECONDS",
        type="float",
        default="300",
    ),
    _value(
        "--on-hang",
        "Action on a hang: report (the default in a job started by hand) or restart.",
        environment="BRAIN_ON_HANG",
        choices=("report", "restart"),
    ),
    _value(
        "--topology",
        "Location of this machine, outermost first: zone/spine/rack/switch.",
        environment="BRAIN_TOPOLOGY",
        default="",
    ),
    _value(
        "--world",
        "Number of processes, instead of --nnodes: DESIRED[:MIN[:MAX]].",
        environment="BRAIN_WORLD",
        default="",
    ),
    _value(
        "--parallel",
        "Ranks of one copy of the network, TENSORxPIPELINE; sets the unit if --node_unit does not.",
        environment="BRAIN_PARALLEL",
        default="",
    ),
    _value(
        "--preload",
        "Modules to import before workers start: learned (those of earlier runs; the default), "
        "torch, none, or parked (each worker starts ahead, does its own imports and waits).",
        environment="BRAIN_PRELOAD",
        choices=("learned", "torch", "none", "parked"),
        default="learned",
    ),
    Flag(
        names=("--park-cuda",),
        dest="park_cuda",
        switch=True,
        help="Parked workers create their CUDA context ahead of time (0.5 GB of GPU memory each).",
    ),
    Flag(
        names=("--no-probe",),
        dest="no_probe",
        switch=True,
        help="Do not load the probe into workers; BRAIN_PROBE=0 does the same.",
    ),
)

#: Flags of torchrun that have no effect here, with their default and the reason.
IDLE_TORCHRUN: Mapping[str, tuple[Any, str]] = {
    "monitor_interval": (0.1, "has no effect: brain-run is notified of exits and does not poll"),
}


class Parser(argparse.ArgumentParser):
    """A parser that raises an error and does not exit, because it also parses job documents."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(message, field="command")


def parse(
    torchrun: Torchrun,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    prog: str = "brain-run",
) -> tuple[dict[str, Any], str, list[str]]:
    """Parse a command line; return the options by destination, the script, and its arguments.

    The script's arguments are not parsed: argparse would take a script's ``--check`` for an
    ambiguous ``--checkpoint…`` of brain-run.

    Raises:
        BadInput: a flag that is not known, or a value that cannot be used.
        SystemExit: the command line asked for help, which was printed.
    """
    head, tail = split(arguments, torchrun)
    options = vars(parser(torchrun, environment, prog).parse_args([*head, *tail[:1]]))
    return options, options.pop("training_script"), list(tail[1:])


def parser(torchrun: Torchrun, environment: Mapping[str, str], prog: str = "brain-run") -> Parser:
    """Return the parser of all flags; ``environment`` gives their defaults."""
    made = Parser(
        prog=prog,
        usage="%(prog)s [flags] script [argument ...]",
        description="Runs a training script as torchrun does; its world can change while it runs.",
        epilog=torchrun.note or f"Flags of torchrun {torchrun.version}.",
        allow_abbrev=False,
    )
    groups = {"torchrun": torchrun.flags, "dlrover-run": _dlrover(prog), "brain-run": OURS}
    for title, known in groups.items():
        group = made.add_argument_group(title)
        for flag in known:
            _add(group, flag, environment)
    made.add_argument(
        "training_script", help="The script; with -m a module, with --no-python a program."
    )
    return made


def _dlrover(prog: str) -> tuple[Flag, ...]:
    if prog != "dlrover-run":
        return DLROVER
    return tuple(
        replace(flag, choices=ACCELERATORS) if flag.dest == "accelerator" else flag
        for flag in DLROVER
    )


def split(arguments: Sequence[str], torchrun: Torchrun) -> tuple[list[str], list[str]]:
    """Split words into two lists: the launcher's flags, with full names, and the script with its
    arguments.

    >>> flags = Torchrun(version="0", flags=(Flag(names=("--tee",), dest="tee"),))
    >>> split(["--te", "3", "--exclude-straggler", "a.py", "--tee"], flags)
    (['--tee', '3', '--exclude-straggler'], ['a.py', '--tee'])
    """
    head: list[str] = []
    rest = list(arguments)
    while rest and _is_flag(rest[0]):
        if rest[0] == "--":
            return head, rest[1:]
        _, full, count = _next_flag(rest, torchrun)
        head += [full, *rest[1:count]]
        del rest[:count]
    return head, rest


def for_torchrun(arguments: Sequence[str], torchrun: Torchrun) -> tuple[list[str], list[str]]:
    """Return the command line without the flags that torchrun lacks, and the names of those flags.

    >>> flags = Torchrun(version="0", flags=(Flag(names=("--tee",), dest="tee"),))
    >>> for_torchrun(["--job", "a", "--te", "3", "a.py", "--job"], flags)
    (['--te', '3', 'a.py', '--job'], ['--job'])
    """
    kept: list[str] = []
    dropped: list[str] = []
    rest = list(arguments)
    while rest and _is_flag(rest[0]) and rest[0] != "--":
        flag, full, count = _next_flag(rest, torchrun)
        if flag is None or flag in torchrun.flags:
            kept += rest[:count]
        else:
            dropped.append(full.partition("=")[0])
        del rest[:count]
    return [*kept, *rest], dropped


def _is_flag(word: str) -> bool:
    return word.startswith("-") and word != "-"  # which is a script on standard input


def _next_flag(words: Sequence[str], torchrun: Torchrun) -> tuple[Flag | None, str, int]:
    """Return the flag in the first word, that word with the flag's full name, and the count of
    words that the flag and its value take.
    """
    name, equals, value = words[0].partition("=")
    flag, full = _flag(name, torchrun)
    takes = flag is not None and not flag.switch and not equals
    valued = takes and len(words) > 1 and not words[1].startswith("-")
    return flag, full + equals + value, 2 if valued else 1


def _flag(name: str, torchrun: Torchrun) -> tuple[Flag | None, str]:
    """Return the flag that a possibly shortened name means, and its full name. A short form of
    torchrun's means the same flag here, whatever flags brain-run adds.
    """
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


#: Names that people use for the only rendezvous there is.
_BACKENDS = frozenset({"static", "c10d", "brain", "dlrover-master"})


def warnings(options: Mapping[str, Any]) -> list[str]:
    """Return one sentence for each given flag that has no effect."""
    reasons = {f.dest: (f.names[0], _nothing(f), f.idle) for f in DLROVER if f.idle}
    reasons |= {
        dest: (f"--{dest.replace('_', '-')}", default, why)
        for dest, (default, why) in IDLE_TORCHRUN.items()
    }
    if options.get("run_path"):
        no_fork = "has no effect: with --run-path, each worker is a new Python interpreter"
        reasons["start_method"] = ("--start-method", "spawn", no_fork)
    said = [
        f"{name} {why}"
        for dest, (name, nothing, why) in reasons.items()
        if options.get(dest, nothing) != nothing
    ]
    if (backend := options.get("rdzv_backend") or "static") not in _BACKENDS:
        said.append(f"--rdzv-backend={backend} is served as c10d: an agent listens at the endpoint")
    return said


def strange(torchrun: Torchrun, options: Mapping[str, Any]) -> list[str]:
    """Return one sentence for each given flag that exists only in a newer torch."""
    known = {flag.dest for flag in shipped().flags}
    return [
        f"{flag.names[0]} of torchrun {torchrun.version} is not known here yet: it has no effect"
        for flag in torchrun.flags
        if flag.dest not in known and str(options.get(flag.dest)) != str(_nothing(flag))
    ]


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
    """Split at commas; a double comma is a comma inside an element.

    >>> comma_separated("apple,or,,ange")
    ['apple', 'or,ange']
    """
    return [piece.replace("\0", ",") for piece in value.replace(",,", "\0").split(",")]


def _yes(flag: Flag, said: str | None) -> bool:
    try:
        return bool(int(said or "0"))
    except ValueError as bad:
        raise BadInput(f"{flag.environment}={said} must be 0 or 1", field=flag.environment) from bad


def _nothing(flag: Flag) -> Any:
    return False if flag.switch else flag.default
