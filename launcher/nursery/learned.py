"""What is remembered of a script between its runs: which libraries it imports, and which of them no
fork server may import.

One JSON file per interpreter, torch and script in the user's cache. Without it, or with a damaged
one, a run begins as the first one did.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

#: Names beyond this are left to the script; a message to the server must not grow without end.
_MODULES = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What one script taught."""

    #: Libraries that it imported up to its first step, in that order.
    modules: tuple[str, ...] = ()
    #: Settings that it made itself and that libraries read as they are imported.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Library -> why its import cannot be shared.
    unsafe: Mapping[str, str] = field(default_factory=dict)
    #: Modules that the script has of its own, and that libraries would have brought along.
    hidden: tuple[str, ...] = ()

    def but(self, module: str, why: str) -> "Learned":
        """Without what ``module`` belongs to: torch's parts one by one, else the whole library."""
        library = module if module.split(".")[0] == "torch" else module.split(".")[0]
        return replace(self, unsafe={**self.unsafe, library: why})

    def preload(self, first: Sequence[str]) -> tuple[str, ...]:
        """What to import ahead: ``first``, then what was learned, nothing that is unsafe."""
        names = dict.fromkeys([*first, *self.modules])
        return tuple(name for name in names if not self._excluded(name))[:_MODULES]

    def _excluded(self, name: str) -> bool:
        return any(name == library or name.startswith(library + ".") for library in self.unsafe)


class Memory:
    """The file of one script."""

    def __init__(self, environment: Mapping[str, str], *key: str) -> None:
        """``key`` is what tells it from others; ``environment`` says where the cache is."""
        root = environment.get("XDG_CACHE_HOME") or os.path.join(
            environment.get("HOME") or os.path.expanduser("~"), ".cache"
        )
        name = hashlib.sha256("\0".join(key).encode(errors="replace")).hexdigest()[:32]
        self._path = Path(root, "elastic-brain", f"preload-{name}.json")

    def recall(self) -> Learned | None:
        """What was remembered; None where that is nothing, or damaged."""
        try:
            content = json.loads(self._path.read_bytes())
            learned = Learned(
                modules=tuple(str(name) for name in content["modules"]),
                environment={str(k): str(v) for k, v in content["environment"].items()},
                unsafe={str(k): str(v) for k, v in content["unsafe"].items()},
                hidden=tuple(str(name) for name in content.get("hidden", ())),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return learned

    def keep(self, learned: Learned) -> None:
        """Remember it, whole or not at all.

        Raises:
            OSError: the cache cannot be written.
        """
        said = {
            "modules": learned.modules,
            "environment": learned.environment,
            "unsafe": learned.unsafe,
            "hidden": learned.hidden,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fd, half = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        try:
            with os.fdopen(fd, "w") as file:
                json.dump(said, file)
            os.replace(half, self._path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(half)
            raise


def read_report(path: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """A worker's report of its imports and settings; empty where it cannot be read."""
    try:
        content = json.loads(Path(path).read_bytes())
        modules = tuple(str(name) for name in content["modules"])
        return modules, {str(k): str(v) for k, v in content["environment"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return (), {}
