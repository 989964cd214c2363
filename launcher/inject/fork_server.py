"""The fork server: a process that has imported the workers' modules, and forks workers.

    python [options of the worker] fork_server.py <socket> <process id of the agent> <padding>

The file is run by its path under the workers' interpreter, uses only the standard library and
supports CPython 3.8 and later. It is the ``__main__`` of every worker until the script replaces it,
so it contains almost nothing. ``server.py`` communicates with the agent, and ``become.py`` turns a
fork into a worker.
"""

import sys

_standing = frozenset(sys.modules)  # as any interpreter has them before its script

import importlib.util  # noqa: E402
import os  # noqa: E402

_path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "server.py")
_spec = importlib.util.spec_from_file_location("_brain_server", _path)
_server = sys.modules["_brain_server"] = importlib.util.module_from_spec(_spec)  # type: ignore[arg-type]
_spec.loader.exec_module(_server)  # type: ignore[union-attr]
# Comes back in workers alone, and from here on the interpreter ends as it does for any script.
_server.main(globals()).run()
