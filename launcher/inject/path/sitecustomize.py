"""The launcher's code that runs first in a worker that is started as a new interpreter.

It runs in the user's process, uses only the standard library and supports CPython 3.8 and later. It
restores the state that the script expects (``sys.path``, ``PYTHONPATH``, the environment, the next
``sitecustomize``). It never raises an exception: a failure costs telemetry, not the job. The code
that stays in the process is in ``inject/bootstrap.py``, one directory above; that directory is not
in ``sys.path``.
"""

import os
import sys

_standing = frozenset(sys.modules)  # as any interpreter has them before its script

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself stays unimported: the script may have a module of that name
    from typing import Any


def _withdraw() -> "dict[str, Any] | None":
    """Remove the launcher's directory from the path and its variables from the environment; return
    the value of BRAIN_WORKER, None in a process that is no rank.
    """
    import json

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    sys.path_importer_cache.pop(here, None)
    text = os.environ.pop("BRAIN_WORKER", None)
    if text is None:
        _strip(here)
        return None
    config: "dict[str, Any]" = json.loads(text)
    if config.get("pythonpath") is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = config["pythonpath"]
    return config


def _strip(here: str) -> None:
    """Keep children from loading this file, if PYTHONPATH was passed on without BRAIN_WORKER."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [entry for entry in entries if entry != here]
    if kept:
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)
    else:
        os.environ.pop("PYTHONPATH", None)


def _begin(config: "dict[str, Any]") -> None:
    """Load the code that stays in this worker under a private name, and start it."""
    import importlib.util

    above = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = os.path.join(above, "bootstrap.py")
    spec = importlib.util.spec_from_file_location("_brain_bootstrap", path)
    if spec is None or spec.loader is None:
        raise ImportError("no Python file: " + path)
    bootstrap = importlib.util.module_from_spec(spec)
    sys.modules["_brain_bootstrap"] = bootstrap
    spec.loader.exec_module(bootstrap)
    bootstrap.begin(config)
    bootstrap.note_uncaught()
    if config.get("first") is not None:
        bootstrap.quietly(bootstrap.give_way, config["first"], _standing)


def _chain() -> None:
    """Run the ``sitecustomize`` behind this one on the path, as if this one did not exist.

    Raises:
        ImportError: there is none; ``site`` then continues as usual.
    """
    sys.modules.pop("sitecustomize", None)
    specs = (finder.find_spec("sitecustomize", None) for finder in sys.meta_path)
    spec = next((spec for spec in specs if spec is not None), None)
    if spec is None or spec.loader is None:
        raise ImportError("No module named 'sitecustomize'", name="sitecustomize")
    module = type(sys)("sitecustomize")
    module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _tell(text: str) -> None:
    try:
        sys.stderr.write(text)
    except (OSError, ValueError, AttributeError):  # full or closed: no interpreter would start
        return


try:
    _config = _withdraw()
    if _config:
        _begin(_config)
except Exception as failed:  # noqa: BLE001 - whatever it is, the script must run
    _tell("brain: the worker goes on without Brain: %r\n" % (failed,))
_chain()
