"""Converts quantities of Kubernetes to Brain's units."""

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache

from brain.errors import BadInput
from brain.types.accelerators import devices
from brain.types.resources import Resources
from scaler.kubernetes.kinds.fields import QUANTITY

#: Powers of 1000; of 1024 if an `i` follows.
_POWERS: Mapping[str, int] = {
    "n": -3, "u": -2, "m": -1, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6,
}  # fmt: skip


#: The largest amount and the smallest step that the API server keeps.
_MOST, _LEAST = Decimal(2**63 - 1), Decimal("1e-9")


@lru_cache(maxsize=4096)
def _number(text: str) -> Decimal:
    """Return the number of a well-formed text.

    Results are cached, because pods and nodes of a cluster repeat a few texts.
    """
    if not re.fullmatch(QUANTITY, text):
        # Decimal takes `nan`, `1_000` and blanks, which no API server does.
        raise ValueError(text)
    if text.endswith("i"):
        return Decimal(text[:-2]) * Decimal(1024) ** _POWERS[text[-2]]
    if text[-1] in _POWERS:
        return Decimal(text[:-1]) * Decimal(1000) ** _POWERS[text[-1]]
    return Decimal(text)


def quantity(value: object, field: str) -> Decimal:
    """Return the number that ``3Gi`` stands for.

    Raises:
        BadInput: the text is no quantity, is negative, or is more than the API server keeps.
    """
    try:
        number = _number("" if isinstance(value, bool) else str(value))
    except (ValueError, ArithmeticError) as bad:
        raise BadInput(
            f"{field} {value!r} is not a quantity; write `2`, `500m` or `3Gi`", field=field
        ) from bad
    if number < 0:
        raise BadInput(f"{field} {value!r} is negative; give 0 or more", field=field)
    if number > _MOST:
        raise BadInput(f"{field} {value!r} is more than {_MOST}; give less", field=field)
    return max(number, _LEAST) if number else number


def resources(amounts: Mapping[str, object], field: str) -> Resources:
    """Return CPU, memory and GPUs in ``amounts``, and ignore other resources, which Brain does not
    use.

    Raises:
        BadInput: an amount is no quantity.

    >>> resources({"cpu": 2, "memory": "3Gi", "tencent.com/vcuda-core": 100}, "requests")
    Resources(cpu_millis=2000, memory_bytes=3221225472, gpus=1)
    """
    numbers = {name: quantity(value, f"{field}.{name}") for name, value in amounts.items()}
    return Resources(
        cpu_millis=_up(numbers.get("cpu", Decimal(0)) * 1000),
        memory_bytes=_up(numbers.get("memory", Decimal(0))),
        gpus=_up(sum((devices(name, number) for name, number in numbers.items()), Decimal(0))),
    )


def is_accelerator(name: str) -> bool:
    """True if a resource is an accelerator, or a part of one."""
    return devices(name, Decimal(1)) > 0


def _up(number: Decimal) -> int:
    return -int(-number // 1)
