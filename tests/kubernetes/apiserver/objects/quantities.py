"""Quantities: ``500m``, ``3Gi``, ``2``; how they are read and how the server writes them."""

import re
from decimal import Decimal
from typing import Any

_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -3, "u": -2, "m": -1, "": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_FORM = re.compile(
    r"(?P<number>[+-]?(\d+\.?\d*|\.\d+))(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?"
)


def parsed(text: Any) -> Decimal:
    """Return the value of a quantity; raises ``ValueError``."""
    match = _FORM.fullmatch(str(text))
    if match is None:
        raise ValueError(
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    number, suffix = Decimal(match["number"]), match["suffix"] or ""
    if suffix in _BINARY:
        return number * Decimal(1024 ** _BINARY[suffix])
    if suffix in _DECIMAL:
        return number * Decimal(1000) ** _DECIMAL[suffix]
    return number * Decimal(10) ** int(suffix[1:])


def canonical(text: Any) -> str:
    """Return a quantity as the server keeps it: ``1000m`` is ``1``, ``1024Mi`` is ``1Gi``."""
    value, match = parsed(text), _FORM.fullmatch(str(text))
    suffix = (match["suffix"] if match else None) or ""
    if value == 0:
        return "0"
    if suffix in _BINARY and value == value.to_integral_value():
        for name in reversed(_BINARY):
            if value % 1024 ** _BINARY[name] == 0:
                return f"{int(value / 1024 ** _BINARY[name])}{name}"
        return str(int(value))
    for name in reversed(_DECIMAL):
        scaled = value / Decimal(1000) ** _DECIMAL[name]
        if scaled == scaled.to_integral_value():
            return f"{int(scaled)}{name}"
    return str(text)
