"""The entry points of the installed programs, in a module whose name no project has.

A project may have packages named as ours, and a PYTHONPATH that puts them before installed ones.
These entry points load ours from this file's directory. They change neither ``sys.path`` nor the
environment, so workers find what they would find under torchrun.

    python -m _elastic_brain MODULE [ARGUMENT]…

runs a module of ours as ``python -m MODULE`` would.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

PACKAGES = frozenset({"brain", "collectors", "launcher", "scaler"})
_HERE = os.path.dirname(os.path.abspath(__file__))


class Finder:
    """Finds our packages, and nothing else, beside this file."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a top-level package of ours; Python finds the modules in it by its path."""
        return PathFinder.find_spec(name, [_HERE], target) if name in PACKAGES else None


def prefer_ours() -> None:
    """Let this process import our packages, not a project's, by their names."""
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)


def brain_run() -> int:
    """``brain-run`` and ``dlrover-run``."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until the agent handles it: an interrupted import prints a traceback, or fails otherwise.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    prefer_ours()
    from launcher.cli import main

    return main()


def brain() -> None:
    """``brain``."""
    prefer_ours()
    try:
        from brain.cli import main

        main()
    except KeyboardInterrupt:
        # Ctrl-C while the modules are loaded; main() has an exit code for later ones.
        sys.exit(130)
    except ModuleNotFoundError:
        from brain.errors import Unavailable
        from brain.extras import expect

        try:
            expect("`brain`", "cli")
        except Unavailable as missing:
            sys.exit(f"brain: {missing}")
        raise


def brain_scale() -> int:
    """``brain-scale``."""
    prefer_ours()
    from scaler.cli import main

    return main()


def brain_collect() -> int:
    """``brain-collect``."""
    prefer_ours()
    from collectors.cli import main

    return main()


def handlers() -> Callable[[Any], Any]:
    """Return what makes a handler of ``RendezvousParameters``: the entry point for torchrun.

    Every program that imports torch's rendezvous, workers among them, loads all entry points. Only
    a torchrun that asks for this one pays for it and prefers our packages.
    """
    return _handler


def _handler(parameters: Any) -> Any:
    prefer_ours()
    from launcher.rendezvous.handler import create

    return create(parameters)


if __name__ == "__main__":
    import runpy

    prefer_ours()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
