"""Optional parts of the installation: which parts are missing, and how to install them.

The module imports only the standard library, because it has to work when no other package is
installed.
"""

import re
from collections.abc import Iterator

from brain.errors import Unavailable

#: The distribution of these extras.
_DISTRIBUTION = "elastic-brain"
#: ``alembic>=1.18; extra == "server"``
_OF_EXTRA = re.compile(r"([\w.-]+).*;.*extra == .(\w+).")


def install(*extras: str) -> str:
    return f"pip install '{_DISTRIBUTION}[{','.join(extras)}]'"


def expect(program: str, *extras: str) -> None:
    """Check that the optional distributions which a program needs are installed.

    Raises:
        Unavailable: a needed distribution is missing; the message has the command that installs it.
    """
    lacking = [extra for extra in extras if any(_missing(extra))]
    if lacking:
        names = ", ".join(dict.fromkeys(name for extra in lacking for name in _missing(extra)))
        raise Unavailable(f"{program} needs {names}: {install(*lacking)}")


def _missing(extra: str) -> Iterator[str]:
    """Yield an extra's missing distributions; none if Brain itself is not installed."""
    # This import costs more than the whole of `brain --help`.
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
