"""Documents name commands of ``brain`` that exist, with flags and arguments that those take."""

import re
import shlex
from pathlib import Path

import click
import pytest

from brain.cli import cli

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs" / "guides").glob("*.md")])
#: Inline code, and lines of a block that a person types.
_NAMED = re.compile(r"`brain ([^`\n]+)`|^(?:\$ )?brain ([^#|>&;\n]+)", re.MULTILINE)
#: Commands that pass on what follows them.
_OPAQUE = {"run", "submit", "estimate", "migrate"}


def named() -> list[tuple[str, str]]:
    return [
        (page.name, (match[1] or match[2]).strip())
        for page in PAGES
        for match in _NAMED.finditer(page.read_text())
    ]


@pytest.mark.parametrize(("page", "words"), named())
def test_a_command_of_a_document_is_taken_as_it_stands(page: str, words: str) -> None:
    name, *rest = shlex.split(words.rstrip("\\ "))
    if name.startswith("-"):  # `brain --help`
        return
    context = click.Context(cli)
    command = cli.get_command(context, name)
    assert command is not None, f"no command {name}"
    if name in _OPAQUE or rest == ["--help"]:
        return
    parser = command.make_parser(click.Context(command, parent=context, info_name=name))
    try:
        _, left, _ = parser.parse_args(rest)
    except click.BadOptionUsage:  # `brain jobs --filter`, which only names the flag
        return
    assert left == [], f"{page}: {name} does not take {left}"
