"""Optional parts of the installation: the missing ones, and how to get them.

Imports the standard library only: it answers where nothing else is installed.
"""

import re
from collections.abc import Iterator

from brain.errors import Unavailable

#: The distribution whose extras these are.
_DISTRIBUTION = "elastic-brain"
#: ``alembic>=1.18; extra == "server"``
_OF_EXTRA = re.compile(r"([\w.-]+).*;.*extra == .(\w+).")


def install(*extras: str) -> str:
    """Return the command that installs extras."""
    return f"pip install '{_DISTRIBUTION}[{','.join(extras)}]'"


def expect(program: str, *extras: str) -> None:
    """Refuse to start a program that lacks something.

    Raises:
        Unavailable: a distribution of these extras is not installed; with the command to install.
    """
    lacking = [extra for extra in extras if any(_missing(extra))]
    if lacking:
        names = ", ".join(dict.fromkeys(name for extra in lacking for name in _missing(extra)))
        raise Unavailable(f"{program} needs {names}: {install(*lacking)}")


def _missing(extra: str) -> Iterator[str]:
    """Names of distributions of an extra that are not installed; none where we are not, either."""
    # Costs more than all that `brain --help` needs.
    from importlib import metadata

    try:
        requirements = metadata.requires(_DISTRIBUTION) or ()
    except metadata.PackageNotFoundError:
        return
    for requirement in requirements:
        found = _OF_EXTRA.fullmatch(requirement)
        if found is not None and found[2] == extra:
            try:
                metadata.version(found[1])
            except metadata.PackageNotFoundError:
                yield found[1]
