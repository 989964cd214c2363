"""Lists the tensors of a state to be saved, and their size in bytes.

The shim loads this module as ``_brain_states``; it uses only the standard library and supports
CPython 3.8 and later.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

#: Parts of a state that are looked at, at most.
_PARTS = 1_000_000


def _within(obj: Any) -> Iterator[Any]:
    """Yield the parts of a state: items of containers, and attributes of objects."""
    known: set[int] = set()
    rest = [obj]
    while rest and len(known) < _PARTS:
        each = rest.pop()
        if isinstance(each, (str, bytes, int, float, type(None))) or id(each) in known:
            continue
        known.add(id(each))
        yield each
        if isinstance(each, dict):
            rest.extend(each.values())
        elif isinstance(each, (list, tuple, set)):
            rest.extend(each)
        elif type(each).__module__ not in ("builtins", "types") and hasattr(each, "__dict__"):
            rest.extend(vars(each).values())


def weigh(obj: Any) -> int:
    """Return the size in bytes of the tensors in a state; each storage is counted once."""
    seen: dict[Any, int] = {}
    for each in _within(obj):
        storage = getattr(each, "untyped_storage", None)
        if callable(storage) and not isinstance(each, type):
            try:
                held = storage()
                seen[held.data_ptr() or id(each)] = held.nbytes()
            except Exception:  # noqa: BLE001 - sparse, fake, somebody's own: it weighs nothing here
                continue
    return sum(seen.values())
