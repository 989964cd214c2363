"""Records facts about the exception that left a script, in addition to its text.

torch reports a full disk as an unexpected position, and a limit of the process as a lack of memory.
Only this process can find the cause, and only at this moment. The module supports CPython 3.8 and
later.
"""

import errno
import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable

#: What the kernel says of a full disk, in any language.
FULL = "No space left on device"
#: More of a traceback is not noted.
CHARACTERS = 16384


def around(
    error: BaseException, probe: "str | None", standard: "Callable[[str], ModuleType]"
) -> "dict[str, Any]":
    """Return the traceback without Brain's frames, the save that failed, limits on memory, and a
    standard stream that nobody reads.

    Args:
        error: the exception that left the script.
        probe: directory or file of the probe, whose frames are Brain's; None without a probe.
        standard: imports a module of the standard library, even if the script has a module with the
            same name.
    """
    said = {"traceback": without_us(error, probe, standard("traceback"))}  # type: dict[str, Any]
    failed_save = getattr(sys.modules.get("_brain_probe"), "failed_save", None)
    if failed_save is not None:
        said["saving"] = failed_save(error)
    said["saving"] = said.get("saving") or unnamed_write(error)
    said["limits"] = limits(standard("resource"))
    if isinstance(error, BrokenPipeError):
        said["unread"] = unread(standard("select"))
    return said


def unread(select: "Any") -> str:
    """Return the standard stream that is a pipe or connection without a reader; empty if there is
    none.
    """
    for fd, name in ((1, "standard output"), (2, "standard error")):
        poll = select.poll()
        poll.register(fd, 0)  # of errors the kernel tells anyway
        if any(seen & select.POLLERR for _, seen in poll.poll(0)):
            return name
    return ""


def unnamed_write(error: "BaseException | None") -> "tuple[str, int] | None":
    """Find the file that was being written, in case no ``OSError`` names it; return its path and
    the free bytes there. None if no frame has a path. ``write`` reports a full disk without a path,
    a copy names both of its files, and a library in another language gives only a text.
    """
    chain = []  # type: list[BaseException]
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    for one in chain:
        path = copied_to(one)
        if not path and type(one) is OSError and one.filename is None:
            path = in_frames(one, written_by)
        if not path and not isinstance(one, OSError) and FULL in str(one):
            path = in_frames(one, meant_by)
        if path:
            return path, free_at(path)
    return None


def copied_to(error: BaseException) -> str:
    """Return the absolute target path of a ``shutil`` copy that found no space; empty for other
    errors.
    """
    if not isinstance(error, OSError):
        return ""
    if error.errno == errno.ENOSPC and isinstance(error.filename2, str):
        return os.path.abspath(error.filename2)
    # ``shutil.Error`` of a tree: (from, to, words) of each file.
    told = error.args[0] if type(error).__name__ == "Error" and error.args else ()
    for each in told if isinstance(told, list) else ():
        if isinstance(each, tuple) and len(each) == 3 and FULL in str(each[2]):
            return os.path.abspath(str(each[1]))
    return ""


def in_frames(error: BaseException, path_of: "Callable[[str, Any], str]") -> str:
    """Return the first path that ``path_of(name, value)`` finds, starting at the innermost
    frame.
    """
    traces, trace = [], error.__traceback__
    while trace is not None:
        traces.append(trace)
        trace = trace.tb_next
    for trace in reversed(traces):
        for name, value in list(trace.tb_frame.f_locals.items()):
            path = path_of(name, value)
            if path:
                return path
    return ""


def free_at(path: str) -> int:
    """Return the free bytes on the file system of a file, which need not exist."""
    found = os.statvfs(path if os.path.exists(path) else os.path.dirname(os.path.abspath(path)))
    return found.f_bavail * found.f_frsize


def meant_by(name: str, value: "Any") -> str:
    """Return the absolute path in a variable whose name is usual for a path, if the path's
    directory exists; else an empty string.
    """
    if name not in ("filename", "path", "file", "f") or not isinstance(value, (str, os.PathLike)):
        return ""
    path = os.path.abspath(os.fsdecode(value))
    return path if os.path.isdir(os.path.dirname(path)) else ""


def written_by(name: str, value: "Any") -> str:
    """Return the absolute path of a file that is or was open for writing; empty for any other
    value.
    """
    if not isinstance(value, io.IOBase):
        return ""
    try:
        path, mode = getattr(value, "name", None), getattr(value, "mode", "")
    except ValueError:  # its buffer was detached
        return ""
    if not isinstance(path, str) or not isinstance(mode, str) or not set(mode) & set("wax+"):
        return ""
    return os.path.abspath(path) if os.path.exists(path) else ""


def without_us(error: BaseException, probe: "str | None", traceback: "Any") -> str:
    """Return the traceback as Python prints it, without frames of the launcher and the probe."""
    ours = [os.path.dirname(os.path.abspath(__file__)) + os.sep]
    if probe:
        ours.append(os.path.dirname(os.path.abspath(probe)) + os.sep)
    told = traceback.TracebackException(type(error), error, error.__traceback__)
    todo, seen = [told], set()  # type: list[Any], set[int]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.stack[:] = [each for each in one.stack if not each.filename.startswith(tuple(ours))]
        todo += [one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())]
    return "".join(told.format())[-CHARACTERS:]


def limits(resource: "Any") -> "dict[str, int]":
    """Return the limits on this process's memory and files, by name; limits that are not set are
    left out.
    """
    found = {}
    for name in ("RLIMIT_AS", "RLIMIT_DATA", "RLIMIT_FSIZE"):
        soft, _ = resource.getrlimit(getattr(resource, name))
        if soft != resource.RLIM_INFINITY:
            found[name] = soft
    return found
