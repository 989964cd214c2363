"""What of ours runs first in a worker: the probe, and the watch over the lease.

A guest in a foreign process: standard library, CPython 3.8 on. It puts everything back as the
script would have found it (``sys.path``, ``PYTHONPATH``, the environment, the next
``sitecustomize``) and never raises: what fails here costs telemetry, not the job.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself stays unimported: the script may have a module of that name
    from typing import Any, Callable

#: Exit code of a worker whose lease ran out.
LEASE_OVER = 83
_LEASE = slice(16, 24)
_WATCH_SECONDS = 0.25


def _withdraw() -> "dict[str, Any] | None":
    """Take our directory off the path and our variables out of the environment; the latter's
    content is returned, None in processes that are no rank."""
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
    """Somebody passed PYTHONPATH on without BRAIN_WORKER: at least children shall not find us."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [entry for entry in entries if entry != here]
    if kept:
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)
    else:
        os.environ.pop("PYTHONPATH", None)


def _watch_lease(path: str) -> None:
    """End this process when the agent has not renewed the lease in time."""
    import _thread
    import mmap
    import time

    with open(path, "rb") as file:
        control = mmap.mmap(file.fileno(), 64, access=mmap.ACCESS_READ)

    # Kept apart from the modules, whose names a script may give other meanings.
    clock, sleep, leave = time.monotonic_ns, time.sleep, os._exit

    def watch() -> None:
        while True:
            until = int.from_bytes(control[_LEASE], "little")
            if until and clock() > until:
                leave(LEASE_OVER)
            sleep(_WATCH_SECONDS)

    # Not ``threading``: the script shall find its own threads only.
    _thread.start_new_thread(watch, ())


def _start_probe(config: "dict[str, Any]") -> None:
    """Load the probe under a private name and start it."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("_brain_probe", config["probe"])
    if spec is None or spec.loader is None:
        raise ImportError("no Python file: " + config["probe"])
    probe = importlib.util.module_from_spec(spec)
    sys.modules["_brain_probe"] = probe
    spec.loader.exec_module(probe)
    probe.start(config)


def _quietly(act: "Callable[..., Any]", *arguments: object) -> "Any":
    try:
        return act(*arguments)
    except Exception as failed:  # noqa: BLE001 - whatever it is, the script must run
        sys.stderr.write("brain: the worker goes on without %s: %r\n" % (act.__name__, failed))
        return None


def _chain() -> None:
    """Run the ``sitecustomize`` that ours was in front of, as if ours had not been there.

    Raises:
        ImportError: there is none; ``site`` then goes on as always.
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


_config = _quietly(_withdraw)
if _config and _config.get("control"):
    _quietly(_watch_lease, _config["control"])
if _config and _config.get("probe"):
    _quietly(_start_probe, _config)
_chain()
