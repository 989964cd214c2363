"""The command line for people. It calls the service over HTTP.

It starts Brain's other programs as processes. Only ``replay`` reads the database: it needs all
records, and changes nothing.

Commands are loaded when they are used, so that ``brain --help`` is fast.
"""

import io
import os
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Any, TextIO

import click

from brain import errors, extras

#: Command -> (module and attribute, what ``brain --help`` says).
COMMANDS = {
    "up": ("brain.cli.up:up", "Start Brain on this machine."),
    "run": (
        "brain.cli.programs:run",
        "Run a script elastically with brain-run, a superset of torchrun.",
    ),
    "submit": ("brain.cli.jobs:submit", "Start a job from a document or a command."),
    "estimate": ("brain.cli.estimate:estimate", "Estimate what a job will need before it runs."),
    "jobs": ("brain.cli.jobs:jobs", "List jobs."),
    "job": ("brain.cli.jobs:job", "Show one job."),
    "cancel": ("brain.cli.jobs:cancel", "End a job for good."),
    "suspend": ("brain.cli.jobs:suspend", "Stop a job at its next safe point."),
    "resume": ("brain.cli.jobs:resume", "Resume a suspended job."),
    "lift-advise-only": (
        "brain.cli.jobs:lift_advise_only",
        "Let Brain change an advise-only job again.",
    ),
    "wait": ("brain.cli.jobs:wait", "Wait until a job or its plan reaches a state."),
    "logs": ("brain.cli.jobs:logs", "Print the output of the workers."),
    "resize": ("brain.cli.plans:resize", "Request another number of replicas."),
    "edit": ("brain.cli.plans:edit", "Change what each replica of a job reserves."),
    "plans": ("brain.cli.plans:plans", "List plans, or those of one job."),
    "approve": ("brain.cli.plans:approve", "Approve a plan."),
    "reject": ("brain.cli.plans:reject", "Reject a plan."),
    "rollback": ("brain.cli.plans:rollback", "Undo a plan: return to the size before it."),
    "explain": ("brain.cli.plans:explain", "Explain why a job has its size."),
    "report": ("brain.cli.report:report", "Compare what a job reserves, uses and should reserve."),
    "what-if": ("brain.cli.plans:what_if", "Predict a job's throughput at other sizes."),
    "replay": ("brain.cli.replay:replay", "Repeat past decisions with other settings and compare."),
    "simulate": (
        "brain.cli.simulate:simulate",
        "Simulate a workload on a cluster in virtual time.",
    ),
    "nodes": ("brain.cli.operate:nodes", "List nodes and what is reserved on them."),
    "pool": ("brain.cli.operate:pool", "Show or change how projects share a pool."),
    "freeze": ("brain.cli.operate:freeze", "Stop applying plans; --off resumes."),
    "sign-in": ("brain.cli.operate:sign_in", "Print a link that signs a browser in."),
    "tokens": ("brain.cli.operate:tokens", "List, mint and revoke tokens."),
    "audit": ("brain.cli.operate:audit", "List all changes, with their authors and times."),
    "doctor": (
        "brain.cli.operate:doctor",
        "Check this installation; each problem comes with its remedy.",
    ),
    "migrate": ("brain.cli.programs:migrate", "Migrate the database to this version's schema."),
    "backup": ("brain.cli.programs:backup", "Write database, key and tokens into a file."),
    "restore": ("brain.cli.programs:restore", "Restore a backup."),
    "gc": ("brain.cli.programs:gc", "Delete directories of ended jobs, and shrink the database."),
    "config": ("brain.cli.operate:config", "Show every setting, its value and its source."),
    "demo": ("brain.cli.demo:demo", "Watch Brain measure, resize and verify a job."),
}

#: Command -> extras without which it does nothing.
EXTRAS = {
    "up": ("server",),
    "backup": ("server",),
    "restore": ("server",),
    "gc": ("server",),
    "replay": ("server",),
    "simulate": ("server",),
    "demo": ("server", "torch"),
}

EXIT_CODES: tuple[tuple[type[errors.BrainError], int], ...] = (
    (errors.BadInput, 2),
    (errors.NotFound, 3),
    (errors.NotAllowed, 4),
    (errors.NotSignedIn, 4),
    (errors.Conflict, 5),
    (errors.KeyReused, 5),
    (errors.BrainError, 1),
)


class _Output(io.FileIO):
    """Standard output, whose errors tell that they are not those of another file."""

    @classmethod
    def replacing(cls, stdout: TextIO) -> TextIO:
        """Return a text file that writes like ``stdout``, and to the same place."""
        return io.TextIOWrapper(
            io.BufferedWriter(cls(stdout.fileno(), "w", closefd=False)),
            encoding=stdout.encoding,
            errors=stdout.errors,
            line_buffering=stdout.isatty(),
        )

    def write(self, data: Any, /) -> int:
        """Write bytes; after an error, the rest of the output is dropped."""
        try:
            return super().write(data)
        except BrokenPipeError:
            # A pager or `head` that needs no more; click ends the command without a word.
            raise
        except OSError as lost:
            # Python writes what waits once more, when the process ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            raise errors.BrainError(
                f"standard output cannot be written: {lost.strerror}; the output is not complete"
            ) from lost


class Commands(click.Group):
    """The group of all ``brain`` commands, which imports a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        extras.expect(f"`brain {cmd_name}`", *EXTRAS.get(cmd_name, ()))
        module, attribute = COMMANDS[cmd_name][0].split(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and (near := get_close_matches(args[0], COMMANDS, n=1)):
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{near[0]}'?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="elastic-brain", prog_name="brain")
@click.pass_context
def cli(context: click.Context) -> None:
    """Brain makes elastic training jobs use the right machines.

    Start with `brain demo`, or `brain up` and `brain submit -- python train.py`.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main() -> None:
    """Run the command line; the exit code depends on the kind of error."""
    if sys.stdout is None:
        # The first file that the command opened would become its standard output.
        click.echo(
            "brain: standard output is closed; give another, for example /dev/null", err=True
        )
        sys.exit(1)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _Output.replacing(sys.__stdout__)
    try:
        # `Exit` comes back as its code in this mode; commands return nothing.
        sys.exit(cli.main(prog_name="brain", standalone_mode=False))
    except click.ClickException as misuse:
        misuse.show()
        sys.exit(misuse.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except errors.BrainError as error:
        click.echo(f"brain: {error}", err=True)
        sys.exit(exit_code(error))
    except UnicodeEncodeError as bad:
        if bad.encoding not in ("utf-8", "utf8"):
            lacks = f"{bad.object[bad.start]!r}, which the encoding {bad.encoding} lacks"
            click.echo(
                f"brain: cannot print {lacks.encode('ascii', 'backslashreplace').decode()}; "
                "set LC_ALL=C.UTF-8",
                err=True,
            )
            sys.exit(1)
        # A word of a command line may hold any bytes, but Brain accepts only UTF-8.
        click.echo(f"brain: {bad.object!r} is not UTF-8 text; write it in UTF-8", err=True)
        sys.exit(2)


def exit_code(error: errors.BrainError) -> int:
    """Return the exit code of an error: 1 failed, 2 usage, 3 not found, 4 not allowed, 5
    conflict.
    """
    return next(code for kind, code in EXIT_CODES if isinstance(error, kind))
