"""Values that JSON and both databases can hold."""

from math import isfinite

from brain.errors import BadInput

#: Largest integer that both databases store.
MOST_INTEGER = 2**63 - 1
#: JSON without any of these has only values that every store can hold, so its values need no
#: check, which would cost as much as parsing. The search is for zeros instead of digits, and for
#: the first byte of NUL's escape: a regular expression costs ten times as much.
_SUSPECT_TEXT, _SUSPECT_NUMBER = b"\\", b"0" * 19
_AS_ZEROS = bytes.maketrans(b"0123456789", b"0" * 10)
#: Most characters of a refused number that an error shows.
_SHOWN = 60


def is_suspect(data: bytes) -> bool:
    """Return True if ``data``, which is JSON, may have a value that some store cannot hold."""
    return _SUSPECT_TEXT in data or _SUSPECT_NUMBER in data.translate(_AS_ZEROS)


def refuse(value: object, name: str = "") -> None:
    """Raise BadInput if a part of ``value`` cannot be represented in JSON or in the database."""
    match value:
        case dict():
            for key, inner in value.items():
                path = f"{name}.{key}" if name else str(key)
                if "\0" in path:
                    raise BadInput(f"{path!r} has a NUL character; rename it", field=path)
                refuse(inner, path)
        case list() | tuple():
            for index, inner in enumerate(value):
                refuse(inner, f"{name}[{index}]")
        case float() if not isfinite(value):
            raise _refusal(name, value, "is not a finite number; leave it out")
        case int() if not -MOST_INTEGER - 1 <= value <= MOST_INTEGER:
            shown = repr(value)[:_SHOWN]
            raise _refusal(name, shown, "does not fit into 64 bits; give a smaller number")
        case str() if "\0" in value:
            raise _refusal(name, repr(value), "has a NUL character; remove it")


def _refusal(name: str, value: object, why: str) -> BadInput:
    # Values of environments are secret, even in the form of a list.
    secret = "environment" in name.replace("[", ".").split(".")
    return BadInput(f"{name} {why}" if secret else f"{name} {value} {why}", field=name)
