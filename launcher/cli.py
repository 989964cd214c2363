"""``brain-run``, also installed as ``dlrover-run``: start a training script as torchrun does."""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace

from brain.errors import BadInput
from launcher.command import flags, plain, slurm
from launcher.command.entrypoint import LAUNCHERS, launched
from launcher.values.streams import drop_unwritten, write

USAGE = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code.

    The code is 0 if all workers ended with 0, else the code of the worker that failed first (128 +
    n if signal n ended it). It is 2 if the command line cannot be used, and 128 + n if signal n
    ended the agent itself.
    """
    _open_streams()
    _watch_children()
    arguments = list(sys.argv[1:] if argv is None else argv)
    called = os.path.basename(sys.argv[0])
    prog = called if called in LAUNCHERS else "brain-run"
    try:
        return _run(arguments, prog)
    except BadInput as unusable:
        write(f"{prog}: {unusable}\nTry '{prog} --help'.\n")
        return USAGE
    except SystemExit as helped:  # argparse has printed the help and leaves
        return int(helped.code or 0)
    finally:
        drop_unwritten()


def _open_streams() -> None:
    """Open /dev/null in place of each standard stream that is closed.

    Otherwise the next file that the agent opens would take the stream's descriptor, and workers
    would write to that file. /dev/null is not inherited, so the stream is closed in workers, too.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest one that is free
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - for as long as we run


def _watch_children() -> None:
    """Stop ignoring SIGCHLD if the program that started this one ignores it. Otherwise the kernel
    would discard how each child ended.
    """
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _run(arguments: list[str], prog: str) -> int:
    environment = dict(os.environ)
    interpreter = environment.get("PYTHON_EXEC", sys.executable)
    if plain.wanted(environment):
        command, note = plain.command(interpreter, arguments, environment)
        write(f"{prog}: {note}\n")
        os.execve(command[0], command, environment)
    try:
        directory = os.getcwd()
    except FileNotFoundError:
        raise BadInput(
            "the working directory was deleted; change to a directory that exists", field="cwd"
        ) from None
    entrypoint = launched(interpreter, arguments, environment, directory, prog=prog)
    for warning in filter(None, [entrypoint.note, *flags.warnings(entrypoint.options)]):
        write(f"{prog}: {warning}\n")
    from launcher import options  # late: help must not wait for what only running needs

    step = slurm.step_of(environment)
    if advice := slurm.advice(step, entrypoint.options):
        write(f"{prog}: {advice}\n")
    said = entrypoint.options
    entrypoint = replace(entrypoint, options=dict(said) | slurm.options_for(step, said))
    config = replace(options.launch_config(entrypoint, environment, directory), step=step)
    if config.shape is None and config.unit > config.nodes_max:
        raise BadInput(
            f"--node_unit={config.unit} (or --parallel) needs at least {config.unit} nodes, but "
            f"--nnodes lets only {config.nodes_max} join; give --nnodes={config.unit} or more",
            field="node_unit",
        )
    if config.processes > 1 and "OMP_NUM_THREADS" not in environment:
        write(
            f"{prog}: OMP_NUM_THREADS=1 is set for each of {config.processes} workers; set "
            "OMP_NUM_THREADS yourself to give each worker more threads\n"
        )
    from launcher.agent import by_hand

    return by_hand.run(config)


if __name__ == "__main__":
    sys.exit(main())
