"""The other programs, started by name, so that nothing of theirs is imported here."""

import os
import sys

import click

from brain import extras

#: Program -> module that is run in its place.
PROGRAMS = {
    "run": "launcher.cli",
    "migrate": "brain.service",
    "crds": "scaler.kubernetes.kinds.upgrade",
}


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(arguments: tuple[str, ...]) -> None:
    """Run a script elastically; all of `brain-run`, a torchrun superset."""
    _become("run", arguments)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[--SETTING VALUE]...")
def migrate(arguments: tuple[str, ...]) -> None:
    """Bring the database to this version's schema, contracting steps included.

    \b
    brain migrate
    brain migrate --home /var/lib/brain --database-url postgresql://brain@db/brain
    brain migrate --check
    brain migrate --crds [--dry-run] [--kubeconfig FILE] [--context NAME]

    --check changes nothing: it names the steps that are missing, and exits with 1 if there are any.
    --crds brings a cluster's kinds to this version instead. The state directory is $BRAIN_HOME, or
    --home. Every setting of `brain config` is an option.
    """
    if "--crds" in arguments:
        extras.expect("`brain migrate --crds`", "kubernetes")
        _become("crds", tuple(word for word in arguments if word != "--crds"))
    extras.expect("`brain migrate`", "server")
    _become("migrate", ("--migrate-only", *arguments))


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of ours, also where a project has one of its name.

    >>> command("brain.service", "--port=0")[1:]
    ['-P', '-m', '_elastic_brain', 'brain.service', '--port=0']
    """
    return [sys.executable, "-P", "-m", "_elastic_brain", module, *arguments]


def _become(program: str, arguments: tuple[str, ...]) -> None:
    sys.stdout.flush()
    os.execv(sys.executable, command(PROGRAMS[program], *arguments))
