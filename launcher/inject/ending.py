"""The end of a forked worker. The module supports CPython 3.8 and later."""

import gc
import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def exit_status(code: object) -> int:
    """Return the exit status that the system reports for the argument of ``sys.exit``."""
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


class Ending:
    """The end of a failed worker: it frees the script's objects, but not the imported libraries.

    An interpreter needs half a second or more to shut torch down before other processes see its
    exit, and the whole world waits for this exit. A worker that succeeds ends as usual.
    """

    def __init__(self) -> None:
        self.code: "int | None" = None
        self.libraries: "frozenset[str]" = frozenset()

    def begin(self) -> None:
        """Store that the script starts. Modules that the script imports from now on are freed
        together with the script's objects.
        """
        self.libraries = frozenset(sys.modules)

    def failed(self, code: object) -> None:
        """Store the script's exit status from ``SystemExit``."""
        self.code = exit_status(code)

    def last(self) -> None:
        """End the process if the script failed; called after all exit handlers and threads have
        ended.
        """
        if not self.code:
            return
        try:
            self._end_what_is_the_scripts()
        finally:
            os._exit(self.code)

    def _end_what_is_the_scripts(self) -> None:
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            if hasattr(sys, name):
                setattr(sys, name, None)
        bootstrap = sys.modules.get("_brain_bootstrap")
        installed = () if bootstrap is None else bootstrap.libraries()
        stays = self.libraries.union(installed)
        own = [name for name in sys.modules if name not in stays]
        # A thread that runs on would stumble over what is gone.
        for name in [] if _threads_run_on() else ["__main__", *reversed(own)]:
            held = getattr(sys.modules[name], "__dict__", None)
            if isinstance(held, dict):  # ``typing.re`` is a class, and None says: never import it
                _clear(held)
        gc.collect()  # what was there before the fork is frozen, and not looked at
        objects = gc.get_objects()
        # By type: objects may answer for their class themselves, and take their time.
        kinds = {kind for kind in set(map(type, objects)) if issubclass(kind, io.IOBase)}
        for each in objects:
            if type(each) in kinds and not each.closed:
                _flush(each)


def _threads_run_on() -> bool:
    """True if daemon threads of the script are left; all others have ended by now."""
    threading = sys.modules.get("threading")
    if threading is None:
        return False
    return bool(threading.enumerate() != [threading.main_thread()])


def _clear(names: "dict[str, Any]") -> None:
    """Release a module's objects, as the interpreter does when it ends."""
    for name in list(names):
        if name != "__builtins__":
            names[name] = None


def _flush(stream: "Any") -> None:
    try:
        stream.flush()
    except Exception:  # noqa: BLE001 - a full disk, a reader that is gone: nobody is left to tell
        return


def report_without_us(ending: Ending) -> None:
    """Pass the exception to the present ``excepthook``, with the traceback from the script's first
    frame on. A hook may leave by ``sys.exit``, with another exit status.
    """
    hook = sys.excepthook

    def excepthook(kind: "Any", error: BaseException, trace: "TracebackType | None") -> None:
        sys.excepthook = hook
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
            trace = trace.tb_next
        sys.last_traceback = trace
        try:
            hook(kind, error.with_traceback(trace), trace)
        except SystemExit as left:
            ending.failed(left.code)
            raise

    sys.excepthook = excepthook
