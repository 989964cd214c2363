"""Amounts of CPU and memory as people type them."""

import re
from decimal import Decimal
from typing import Any

import click

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_CPU = {"": 1000, "m": 1}
_MEMORY = {"": 1, "b": 1} | {
    prefix.lower() + unit: base ** (power + 1)
    for power, prefix in enumerate("KMGTP")
    for unit, base in (("", 1000), ("b", 1000), ("i", 1024), ("ib", 1024))
}


class _Amount(click.ParamType[int]):
    def __init__(self, name: str, units: dict[str, int], example: str) -> None:
        self.name, self._units, self._example = name, units, example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse an amount, or fail with a message that gives an example."""
        if isinstance(value, int):
            return value
        found = _AMOUNT.fullmatch(str(value).strip())
        unit = self._units.get(found[2].lower()) if found else None
        if found is None or unit is None:
            self.fail(
                f"{value!r} is not a valid amount of {self.name}; write {self._example}", param, ctx
            )
        return int(Decimal(found[1]) * unit)


#: In mCPU: ``1.5`` and ``1500m`` are 1500.
CPU = _Amount("CPU", _CPU, "1.5 or 1500m")
#: In bytes: ``2Gi`` and ``2 GiB`` are 2147483648, ``2G`` 2000000000.
MEMORY = _Amount("memory", _MEMORY, "2Gi, 512Mi or 2G")
