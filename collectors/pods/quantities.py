"""Parses Kubernetes quantities: ``1500m``, ``3Gi``, ``12345n``, ``1e3``."""

import re
from decimal import Decimal
from math import ceil

from brain.errors import BadInput

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,3})?")
_FACTOR: dict[str | None, Decimal] = {
    None: Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    **{letter: Decimal(1000**power) for power, letter in enumerate("MGTPE", 2)},
    **{f"{letter}i": Decimal(1024**power) for power, letter in enumerate("KMGTPE", 1)},
}


def quantity(text: object, *, field: str = "quantity") -> Decimal:
    """Return a quantity as a number, with its suffix applied.

    Raises:
        BadInput: the text is not a quantity; the message names ``field``.

    >>> quantity("3Gi"), quantity("250m"), quantity("1e3"), quantity(2)
    (Decimal('3221225472'), Decimal('0.250'), Decimal('1E+3'), Decimal('2'))
    """
    found = _FORM.fullmatch(str(text).strip())
    if found is None:
        raise BadInput(f"{field} {text!r} is not a quantity; write 500m, 2 or 3Gi", field=field)
    number, suffix = Decimal(found[1]), found[2]
    if suffix and suffix[0] in "eE" and len(suffix) > 1:
        return Decimal(f"{number}{suffix}")
    return number * _FACTOR[suffix]


def millis(text: object, *, field: str = "cpu") -> int:
    """Return a CPU quantity in thousandths of a processor, rounded up as in Kubernetes.

    >>> millis("2"), millis("1500m"), millis("12345678n")
    (2000, 1500, 13)
    """
    return ceil(quantity(text, field=field) * 1000)


def whole(text: object, *, field: str = "memory") -> int:
    """Return a number of bytes or of items, rounded up.

    >>> whole("1.5Ki"), whole("100")
    (1536, 100)
    """
    return ceil(quantity(text, field=field))
