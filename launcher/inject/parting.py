"""Keeps destroyed process groups alive for a while, because ranks may hang when they disconnect.

torch 2.13 may hang forever if a gloo group is destroyed right after its last use. The group's
destructor holds the interpreter's lock while it waits for the group's threads. Such a thread may
need this lock to release a tensor. On a busy machine about one process in ten hangs at its end,
under any launcher. So a destroyed group is kept until it has been unused for a long time, or its
process ends; unclear cases are left to torch, and so are groups whose ranks met through a file.
This module runs inside workers, uses only the standard library and supports CPython 3.8 and later.
"""

import atexit
import contextlib
import functools
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: A group's threads have let go of everything so long after its last collective.
STILL_SECONDS = 10.0

#: When each group was destroyed, and the group.
_kept: "list[tuple[float, Any]]" = []


def begin() -> None:
    """If torch is imported, start to keep the groups that the script destroys."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if module is None or not hasattr(module, "_world"):
        return
    # Both are looked up as destroy_process_group runs, by whatever name the script knows that.
    _before(module, "_update_default_pg", lambda group: [] if group else list(module._world.pg_map))
    _before(module, "_unregister_process_group", lambda name: _named(module, name))
    # As the interpreter ends it would take groups apart that nobody destroyed.
    atexit.register(_at_end, module)


def _before(module: "Any", name: str, parting: "Any") -> None:
    original = getattr(module, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def keeping(said: "Any", *args: "Any", **kwargs: "Any") -> "Any":
        with contextlib.suppress(Exception):  # another torch has other insides: it does as always
            keep(module, parting(said))
        return original(said, *args, **kwargs)

    setattr(module, name, keeping)


def _at_end(module: "Any") -> None:
    with contextlib.suppress(Exception):  # another torch has other insides: it does as always
        keep(module, list(module._world.pg_map))


def _named(module: "Any", name: str) -> "list[Any]":
    return [group for group in module._world.pg_map if group.group_name == name]


def keep(module: "Any", groups: "list[Any]") -> None:
    """Keep the gloo groups in ``groups``, and release those that have been unused for long."""
    import ctypes

    now = time.monotonic()
    for at, group in list(_kept):
        if now - at > STILL_SECONDS:
            _kept.remove((at, group))
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(group))
    for group in groups:
        if _in_a_file(module._world.pg_map[group][1]):
            continue
        if "gloo" in str(module._world.pg_backend_config.get(group)):
            # The list goes as the interpreter ends; this reference does not.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))
            _kept.append((now, group))


def _in_a_file(store: "Any") -> bool:
    """True if a group's ranks met in a file. The last rank's store deletes it as it is destroyed,
    and the next run would find the addresses of this one there.
    """
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return type(store).__name__ == "FileStore"
