"""What is inside a state: how much there is of it, and how it comes out of memory.

Part of the shim, beside it and loaded by it as ``_brain_states``: standard library, CPython 3.8 on.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

#: Parts of a state that are looked at, at most.
_PARTS = 1_000_000


def arguments(function: Any) -> tuple[str, ...]:
    """Names of a function's arguments, those it was wrapped with included."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = function.__code__
    return tuple(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def load_mapped(original: Any, path: str, kwargs: dict[str, Any]) -> Any:
    """Load by mapping, which skips a checksum and a copy, then give every tensor memory of its own.

    What comes out is what plain ``torch.load`` gives: ordinary storages that can be resized.
    """
    try:
        loaded = original(path, mmap=True, **kwargs)
    except RuntimeError:  # of a format that cannot be mapped
        return original(path, **kwargs)
    torch = sys.modules["torch"]
    plain = (torch.Tensor, torch.nn.Parameter)
    own: dict[int, Any] = {}
    with torch.no_grad():
        for each in _within(loaded):
            if type(each) not in plain or each.layout != torch.strided or each.device.type != "cpu":
                continue
            if each.is_conj() or each.is_neg() or each.is_quantized:
                continue
            mapped = each.untyped_storage()
            if mapped._cdata not in own:
                # The first is kept too, so that no other takes its place.
                own[mapped._cdata] = mapped, mapped.clone()
            fresh = torch.empty(0, dtype=each.dtype)
            fresh.set_(own[mapped._cdata][1], each.storage_offset(), each.size(), each.stride())
            each.data = fresh
    return loaded


def _within(obj: Any) -> Iterator[Any]:
    """The parts of a state: what containers hold, and objects in their attributes."""
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
    """Bytes of the tensors in a state, each storage once."""
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
