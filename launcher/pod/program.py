"""Runs the agent that a pod's environment describes, and writes how it ended to the pod's
termination message.
"""

import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from brain import wire
from brain.errors import BadInput
from brain.types.job import Checkpoint
from brain.types.world import ReplicaEnd
from launcher.agent import program
from launcher.coordinator.pod_place import PodPlace, read_place
from launcher.coordinator.world.ledger import WorldLedger
from launcher.values import replica
from launcher.values.console import say
from launcher.values.replica import JobPlace, ReplicaIntent

#: Names under which a shell finds brain-run instead of the image's launchers.
_OURS = ("dlrover-run", "brain-run")
_LOOK_SECONDS = 0.1
#: Before the words of the command, in which Kubernetes has put values for ``$(NAME)``.
RUN = "--run"
#: Variables of the launcher that no worker needs.
_PRIVATE = ("BRAIN_POD", "BRAIN_POD_HOME", "BRAIN_POD_FILES")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodIntent:
    """``BRAIN_POD``: the scaler's order for this replica, without the facts that only the pod
    knows.
    """

    v: int = 1
    job: str
    name: str
    replica: int
    role: str = "worker"
    generation: int = 0
    #: As it would be run without a shell; with ``shell`` as it stands in the container.
    command: tuple[str, ...]
    shell: bool = False
    #: Set before the command.
    exports: Mapping[str, str] = field(default_factory=dict)
    #: None for the directory in which the container starts.
    directory: str | None = None
    processes: int = 1
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    unit: int = 1
    minimum: int = 1
    restart_limit: int = 10
    brain_url: str | None = None
    accelerator: str = "cpu"
    #: Port at which this agent answers.
    port: int
    #: Worlds of the job have reached this epoch.
    epoch: int = 0
    #: Replicas beyond the desired world are kept warm.
    spares: bool = False


def main(argv: Sequence[str] = ()) -> int:
    """Run the pod's agent; return the workers' exit code."""
    environment = os.environ
    try:
        told = wire.decode(environment["BRAIN_POD"], PodIntent)
        wire.check_version(told.v, sender="the scaler")
    except (KeyError, BadInput) as bad:
        sys.stderr.write(f"brain: BRAIN_POD cannot be used ({bad}); the scaler sets it\n")
        return 2
    home, files = Path(environment["BRAIN_POD_HOME"], "home"), Path(environment["BRAIN_POD_FILES"])
    # The volume itself is root's, and whoever runs here need not be.
    home.mkdir(mode=0o700, exist_ok=True)
    if argv[:1] == [RUN]:
        told = replace(told, command=tuple(argv[1:]))
    elif argv[:1] == ["--"]:
        told = replace(told, command=tuple(argv[1:]), shell=False, directory=os.getcwd())
    environment.update(told.exports)
    if told.directory:
        os.chdir(told.directory)
    if told.shell:
        return _in_shell(told, home / "shims")
    return _as_agent(told, home, files)


def _in_shell(told: PodIntent, shims: Path) -> int:
    """Run the container's shell; if it starts a launcher, the launcher is brain-run."""
    shims.mkdir(parents=True, exist_ok=True)
    ours = shlex.join([sys.executable, "-E", "-P", "-m", "launcher.pod", "--"])
    for name in _OURS:
        shim = shims / name
        shim.write_text(f'#!/bin/sh\nexec {ours} {name} "$@"\n')
        shim.chmod(0o755)
    os.environ["PATH"] = f"{shims}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    sys.stdout.flush()
    os.execvp(told.command[0], told.command)


def _as_agent(told: PodIntent, home: Path, files: Path) -> int:
    place = _placed(files / "place", say)
    directory = home / "replicas" / told.job / str(told.replica)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    replica.write(directory / "intent.json", intent(told, place, os.environ, home, files))
    if told.epoch:
        # A job that lost all its pods goes on with later epochs than Brain has heard of.
        JobPlace(directory.parent).keep("ledger", WorldLedger(epoch=told.epoch))
    log = os.environ.get("BRAIN_TERMINATION_LOG", "/dev/termination-log")
    for name in _PRIVATE:
        os.environ.pop(name, None)
    try:
        code = program.main(["--replica-dir", str(directory)])
    except OSError as cannot:
        # Another has the port of a shared host, for example: elsewhere it may do.
        say(f"the agent cannot run at {os.environ.get('POD_IP')}:{told.port}: {cannot}")
        return program.BUSY
    _leave_word(directory, Path(log))
    return code


def intent(
    told: PodIntent, place: PodPlace, environment: Mapping[str, str], home: Path, files: Path
) -> ReplicaIntent:
    """Build the agent's intent, with the address and node that only the pod knows."""
    return ReplicaIntent(
        job=told.job,
        name=told.name,
        replica=told.replica,
        role=told.role,
        node=environment.get("NODE_NAME") or "unknown",
        generation=told.generation,
        command=told.command,
        processes=told.processes,
        directory=told.directory,
        checkpoint=told.checkpoint,
        unit=told.unit,
        minimum=told.minimum,
        restart_limit=told.restart_limit,
        brain_url=told.brain_url,
        token_file=str(files / "token"),
        home=str(home),
        accelerator=told.accelerator,
        address=environment.get("POD_IP") or "127.0.0.1",
        port=told.port,
        place_file=str(files / "place"),
        topology=place.topology,
        spares=told.spares,
    )


def _placed(file: Path, say: Callable[[str], None]) -> PodPlace:
    """Wait until the scaler names the other replicas' addresses: the first pod with an address is
    enough.
    """
    said = False
    while not (place := read_place(file)).endpoint:
        if not said:
            say("waiting: the scaler has not yet named the addresses of the other replicas")
            said = True
        time.sleep(_LOOK_SECONDS)
    return place


def _leave_word(directory: Path, log: Path) -> None:
    """Write the agent's end to the pod's termination message, which the cluster keeps."""
    end = replica.read(directory / "exit.json", ReplicaEnd)
    if end is None:
        return
    short = replace(end, detail=end.detail[-2000:], unfit=end.unfit[:500])
    try:
        log.write_bytes(wire.encode(short))
    except OSError as cannot:
        say(f"the reason for the agent's end cannot be written to {log}: {cannot}")
