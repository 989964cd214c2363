"""Finds the service and a token: in the environment, else in the state directory."""

import getpass
import json
import os
import tomllib
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import click

from brain.client import BrainClient
from brain.errors import BadInput, NotSignedIn, Unavailable
from brain.views import Page, SignInCode


def state_directory() -> Path:
    """Return ``$BRAIN_HOME``, by default ``~/.brain``."""
    return Path(os.environ.get("BRAIN_HOME", "~/.brain")).expanduser()


def written_settings(file: Path) -> dict[str, Any]:
    """Return the settings in a ``brain.toml``; none if the file does not exist.

    Raises:
        BadInput: the file cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    except (OSError, ValueError) as bad:
        raise BadInput(f"{file} cannot be used: {bad}; correct it or delete it") from bad


def service_url() -> str:
    """Return the URL of the service that the environment or the state directory names.

    Raises:
        Unavailable: neither the environment nor the state directory names a service.
    """
    if url := os.environ.get("BRAIN_URL"):
        return url
    record = state_directory() / "service.json"
    try:
        return str(json.loads(record.read_text())["url"])
    except (OSError, ValueError, KeyError, TypeError) as missing:
        raise Unavailable(
            f"no Brain runs on this machine ({record} is missing or unreadable): start one with "
            "`brain up`, or give the URL of another in BRAIN_URL"
        ) from missing


def token() -> str:
    """Return the token in the environment; without one, the administrator's token in the state
    directory.

    Raises:
        NotSignedIn: neither place has a token.
    """
    if secret := os.environ.get("BRAIN_TOKEN"):
        return secret
    record = state_directory() / "admin.token"
    try:
        return record.read_text().strip()
    except OSError as missing:
        raise NotSignedIn(
            f"no token was found: set BRAIN_TOKEN, or run as a user who can read {record}"
        ) from (missing)


def project() -> str:
    """Return ``BRAIN_PROJECT``, the project in which jobs are submitted and job names are looked
    up.

    The result is empty if the variable is unset.
    """
    return os.environ.get("BRAIN_PROJECT", "")


def connect() -> BrainClient:
    """Return a client for the service at ``service_url()``, in the project that BRAIN_PROJECT
    names.
    """
    return BrainClient(service_url(), token(), project=project())


def somebody() -> str:
    """Return the name of the user who runs the command."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the user of a container may have no name
        return f"user {os.getuid()}"


def link(url: str, code: SignInCode) -> str:
    """Return the sentence with a link that signs a browser in."""
    return (
        f"Open this link within 10 minutes to sign in as {code.name}; it works once: "
        f"{url}{code.path}"
    )


def with_client(command: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a command so that it gets an open ``BrainClient`` as its first argument."""

    @wraps(command)
    def wrapped(*args: Any, **options: Any) -> Any:
        with connect() as client:
            return command(client, *args, **options)

    return wrapped


def pages(client: BrainClient, call: Callable[[str], Any]) -> Iterator[Any]:
    """Return all items of a paged list."""
    token: str | None = ""
    while token is not None:
        page: Page[Any] = client.send(call(token))
        yield from page.items
        token = page.next_page_token


def say_dry_run(dry_run: bool, form: str) -> None:
    """Print the heading of a dry run, if the output is for a person."""
    if dry_run and form in ("table", "wide"):
        click.echo("Nothing was changed. The command would change:")


def gpus_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option ``--gpus`` to a command."""
    return click.option(
        "--gpus",
        type=click.IntRange(min=0),
        default=0,
        metavar="N",
        help=(
            "Number of GPUs that Brain gives to each replica for itself; default: none, and each "
            "replica sees all GPUs."
        ),
    )(command)


def dry_run_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option ``--dry-run`` to a command."""
    return click.option(
        "--dry-run", is_flag=True, help=("Print what the command would change, and change nothing.")
    )(command)
