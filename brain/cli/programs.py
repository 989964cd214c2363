"""Starts other programs by name, so that this module imports none of their modules."""

import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from brain import extras
from brain.cli.connect import state_directory

#: Program -> module that replaces this process.
PROGRAMS = {
    "run": "launcher.cli",
    "migrate": "brain.service",
    "backup": "brain.service.backup",
    "gc": "brain.service.gc",
    "crds": "scaler.kubernetes.kinds.upgrade",
}


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(arguments: tuple[str, ...]) -> None:
    """Run a script elastically, with every option of `brain-run`, a superset of torchrun."""
    _become("run", arguments)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[--SETTING VALUE]...")
def migrate(arguments: tuple[str, ...]) -> None:
    """Migrate the database to this version's schema, including the contracting steps.

    \b
    brain migrate
    brain migrate --home /var/lib/brain --database-url postgresql://brain@db/brain
    brain migrate --check
    brain migrate --crds [--dry-run] [--kubeconfig FILE] [--context NAME]

    --check changes nothing: it names the steps that are missing, and exits with 1 if there are any.
    With --crds, the command instead updates a cluster's kinds (its custom resource definitions).
    The state directory is $BRAIN_HOME, or --home. Every setting of `brain config` is an option.
    """
    if "--crds" in arguments:
        extras.expect("`brain migrate --crds`", "kubernetes")
        _become("crds", tuple(word for word in arguments if word != "--crds"))
    extras.expect("`brain migrate`", "server")
    _become("migrate", ("--migrate-only", *arguments))


def installation(chosen: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name an installation; each overrides its environment variable."""

    @click.option("--home", type=click.Path(path_type=Path), help="State directory ($BRAIN_HOME).")
    @click.option(
        "--database-url",
        help=("SQLAlchemy URL of the database; default: the database of `brain up`."),
    )
    @wraps(chosen)
    def wrapped(home: Path | None, database_url: str | None, **options: Any) -> None:
        # Not an argument: any user may read a process's arguments, and a URL may hold a password.
        if database_url is not None:
            os.environ["BRAIN_DATABASE_URL"] = database_url
        chosen((home or state_directory()).expanduser().absolute(), **options)

    return wrapped


@click.command()
@click.argument("file", type=click.Path())
@installation
def backup(home: Path, file: str) -> None:
    """Write database, key and tokens into FILE, while Brain runs.

    \b
    brain backup /backups/brain.tar

    FILE is consistent: it holds everything that Brain acknowledged before the backup began. Only
    you can read it. A backup of PostgreSQL needs pg_dump. FILE contains neither the directories of
    jobs nor brain.toml.
    """
    _become("backup", ("backup", file, "--home", str(home)))


@click.command()
@click.argument("file", type=click.Path())
@click.option("--overwrite", is_flag=True, help="Replace the data that the target holds.")
@installation
def restore(home: Path, file: str, overwrite: bool) -> None:
    """Restore FILE, which `brain backup` wrote, to a state directory and its database; stop Brain
    first.

    \b
    brain restore /backups/brain.tar --home /var/lib/brain

    An older version's backup is migrated at the next start; a newer version's is refused.
    """
    said = ("--overwrite",) if overwrite else ()
    _become("backup", ("restore", file, "--home", str(home), *said))


@click.command()
@click.option("--dry-run", is_flag=True, help="Print what would be freed, and change nothing.")
@installation
def gc(home: Path, dry_run: bool) -> None:
    """Delete directories of jobs that ended, and shrink the database; running jobs lose nothing.

    \b
    brain gc --dry-run
    BRAIN_ENDED_JOB_SECONDS=86400 brain gc

    The settings ended_job_seconds and ended_job_bytes limit what stays. The service does the same
    every hour.
    """
    _become("gc", ("--home", str(home), *(("--dry-run",) if dry_run else ())))


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of Brain, even if the project has a module of that
    name.

    >>> command("brain.service", "--port=0")[1:]
    ['-P', '-m', '_elastic_brain', 'brain.service', '--port=0']
    """
    return [sys.executable, "-P", "-m", "_elastic_brain", module, *arguments]


def _become(program: str, arguments: tuple[str, ...]) -> None:
    sys.stdout.flush()
    os.execv(sys.executable, command(PROGRAMS[program], *arguments))
