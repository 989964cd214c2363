"""Reads the ``#:`` comments of a struct's fields from the source."""

import ast
import inspect
import textwrap
from functools import cache


@cache
def field_texts(kind: type) -> dict[str, str]:
    """Return each field's text in one line, by name; fields without a comment are left out."""
    return _texts(kind, ast.AnnAssign)


@cache
def member_texts(kind: type) -> dict[str, str]:
    """Return each enumeration member's text."""
    return _texts(kind, ast.Assign)


def summary(kind: type) -> str:
    """Return the first paragraph of a class's docstring, on one line."""
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())


def _texts(kind: type, statements: type[ast.AnnAssign] | type[ast.Assign]) -> dict[str, str]:
    source = textwrap.dedent(inspect.getsource(kind))
    lines = source.splitlines()
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    texts = {}
    for statement in body.body:
        if isinstance(statement, statements):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            text = _above(lines, statement.lineno - 1)
            if isinstance(target, ast.Name) and text:
                texts[target.id] = text
    return texts


def _above(lines: list[str], index: int) -> str:
    found: list[str] = []
    while index > 0 and lines[index - 1].strip().startswith("#:"):
        index -= 1
        found.insert(0, lines[index].strip().removeprefix("#:").strip())
    return " ".join(found)
