"""Modules of the script that have the same name as another module: the script's own are preferred.

A fresh interpreter looks into the script's directory before the standard library and installed
packages. If the launcher has already imported a module of that name, it is removed before the
script runs, so that the script imports its own module. This module runs inside workers, uses only
the standard library and supports CPython 3.8 and later.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Collection

#: What of ours imports later, while the script runs.
_LATER = ("json", "resource", "socket", "traceback")
#: Modules that the script's own replaced, under their names: we go on with them.
_replaced: "dict[str, ModuleType]" = {}


def standard(name: str) -> "ModuleType":
    """Return the module called ``name`` that does not belong to the script."""
    return _replaced.get(name) or __import__(name)


def modules_in(directory: str) -> "frozenset[str]":
    """Return the names that an import finds in a directory or archive before it searches
    elsewhere.
    """
    import _imp
    from importlib.machinery import all_suffixes

    suffixes = tuple(all_suffixes())
    found = set()
    for entry in _files(directory, suffixes):
        name = entry.partition(".")[0].partition(os.sep)[0]
        inside = name + os.sep + "__init__"
        known = any(entry in (name + suffix, inside + suffix) for suffix in suffixes)
        if known and name not in sys.builtin_module_names and not _imp.is_frozen(name):
            found.add(name)
    return frozenset(found)


def _files(directory: str, suffixes: "Collection[str]") -> "Collection[str]":
    """Files in a directory or an archive that may be modules or begin packages."""
    try:
        entries = os.listdir(directory or ".")
    except NotADirectoryError:
        import zipfile

        with zipfile.ZipFile(directory) as archive:
            return archive.namelist()
    except OSError:
        return ()
    # Data beside a script may be many files, whose names no import asks for.
    packages = (os.path.join(name, "__init__") for name in entries if name.isidentifier())
    inside = (package + suffix for package in packages for suffix in suffixes)
    return [*entries, *(each for each in inside if os.path.isfile(os.path.join(directory, each)))]


def hidden(own: "Collection[str]", before: "Collection[str]") -> "list[str]":
    """Return the names in ``own``, the script's modules, under which this process has imported
    another module.

    ``before``: modules that every interpreter has before any code of the launcher runs.
    """
    return sorted(name for name in own if name in sys.modules and name not in before)


def give_way(own: "Collection[str]", before: "Collection[str]") -> None:
    """Remove imported modules that have the names of the script's own modules."""
    for name in set(own).intersection(_LATER):
        __import__(name)
    for name in hidden(own, before):
        for each in [each for each in sys.modules if each.partition(".")[0] == name]:
            _replaced[each] = sys.modules.pop(each)
