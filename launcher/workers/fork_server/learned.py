"""Stores, between runs, a script's imports and the libraries that no fork server may import.

The facts are in two JSON files in the user's cache: one per interpreter, torch and script, and one
per interpreter and torch. If these files are missing or damaged, a run begins like the first run.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

#: Names beyond this are left to the script; a message to the server must not grow without end.
_MODULES = 5000
_INJECT = Path(__file__).parents[2] / "inject"
#: Files that say what a trace is: verdicts hold as long as these are the same.
RULES = (_INJECT / "generators.py", _INJECT / "traces.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """Knowledge from earlier runs of one script."""

    #: Libraries that it imported up to its first step, in that order.
    modules: tuple[str, ...] = ()
    #: Settings that it made itself and that libraries read as they are imported.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: They were read as the script imported its first library; else at its first step.
    exact: bool = False
    #: Why nothing is imported ahead; empty: it may be.
    plain: str = ""
    #: Digest of the script's text of which ``exact`` and ``plain`` hold.
    text: str = ""
    #: It is plain for what torch lacks, of which everybody is told at each start.
    lacks: bool = False
    #: Library -> why its import cannot be shared.
    unsafe: Mapping[str, str] = field(default_factory=dict)
    #: Library -> its file as it was then: another version has to prove itself anew.
    stamps: Mapping[str, str] = field(default_factory=dict)
    #: Modules whose import left no trace, or failed: a world may wait for them.
    proven: frozenset[str] = frozenset()
    #: Modules that the script has of its own, and that libraries would have brought along.
    hidden: tuple[str, ...] = ()

    def but(self, module: str, why: str, stamp: str = "") -> "Learned":
        """Return this knowledge with the library of ``module`` marked unsafe.

        If ``module`` belongs to torch, only ``module`` is marked, not all of torch. ``stamp`` is
        the library file's stamp.
        """
        library = module if module.split(".")[0] == "torch" else module.split(".")[0]
        stamps = {**self.stamps, library: stamp}
        return replace(self, unsafe={**self.unsafe, library: why}, stamps=stamps)

    def current(self) -> "Learned":
        """Return this knowledge without the unsafe marks of libraries that have changed since they
        were marked.
        """
        kept = {
            library: why
            for library, why in self.unsafe.items()
            if (known := self.stamps.get(library, "")) == stamp(known.rpartition(" ")[0])
        }
        return replace(self, unsafe=kept)

    def is_proven(self, module: str) -> bool:
        """True if a world may wait for the import of ``module``: the import is known to leave no
        trace, or to fail.

        Modules of torch are always proven.
        """
        return module in self.proven or module.split(".")[0] == "torch"

    def proving(self, modules: Iterable[str]) -> "Learned":
        """Return this knowledge with ``modules`` marked as proven: a world may wait for their
        import.

        >>> learned = Learned(modules=("numpy", "mine")).proving(["numpy"])
        >>> learned.is_proven("numpy"), learned.is_proven("mine")
        (True, False)
        """
        return replace(self, proven=self.proven.union(modules))

    def taught(self, report: "ImportReport", text: str) -> "Learned":
        """Return this knowledge, updated by the report of a worker that has made its first step.

        ``text`` is the digest of the script's text.
        """
        kept = self.exact and not report.exact
        settings = self.environment if kept else report.environment
        return replace(
            self,
            modules=report.modules,
            environment=settings,
            exact=self.exact or report.exact,
            text=text if report.exact else self.text,
        )

    def sets_nothing(self, text: str) -> bool:
        """True if a script with this text made no settings before its imports in an earlier run."""
        return self.exact and not self.environment and bool(text) and self.text == text

    def differing(self, told: "ImportSettings", text: str) -> "Learned":
        """Return this knowledge, updated because a script had other settings at its first import
        than the fork server.

        If the worker could start again in a fresh interpreter, the script is forked next time from
        a server with the script's settings. If it could not, or if the settings vary, the script is
        not forked. ``text`` is the digest of the script.

        >>> first = Learned().differing(ImportSettings(environment={"OMP_NUM_THREADS": "2"}), "a")
        >>> first.environment, first.plain
        ({'OMP_NUM_THREADS': '2'}, '')
        >>> first.differing(ImportSettings(environment={"OMP_NUM_THREADS": "3"}), "a").plain
        'it varies OMP_NUM_THREADS before its imports'
        """
        names = ", ".join(told.names or sorted({**self.environment, **(told.environment or {})}))
        if not told.again:
            why = f"it sets {names} before its imports, after actions that cannot be repeated"
        elif told.environment is None:
            why = f"it sets or removes {names} before its imports, which a fork server cannot do"
        elif self.exact and told.environment != self.environment:
            why = f"it varies {names} before its imports"
        else:
            return replace(self, environment=told.environment, exact=True)
        return replace(self, plain=why, text=text)

    def for_text(self, text: str) -> "Learned":
        """Return the knowledge that is valid for a script whose text has this digest.

        Another text may have other imports.
        """
        return (
            self
            if not self.plain or self.text == text
            else Learned(
                unsafe=self.unsafe, stamps=self.stamps, proven=self.proven, hidden=self.hidden
            )
        )

    def preload(self, first: Sequence[str]) -> tuple[str, ...]:
        """Return the modules to import ahead: ``first``, then the learned modules. Unsafe modules
        are left out.
        """
        names = dict.fromkeys([*first, *self.modules])
        return tuple(name for name in names if not self._excluded(name))[:_MODULES]

    def _excluded(self, name: str) -> bool:
        return any(name == library or name.startswith(library + ".") for library in self.unsafe)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """The modules a worker had imported by its first step, and the settings that it made."""

    modules: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    #: As ``Learned.exact``.
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSettings:
    """A worker's settings at its first import, as far as they differ from the fork server's."""

    #: The script's own; None where they cannot be given to a server.
    environment: Mapping[str, str] | None
    #: It started again by an interpreter of its own.
    again: bool = True
    names: tuple[str, ...] = ()


def stamp(path: str) -> str:
    """Return a text that identifies a version of a library: its file and modification time."""
    try:
        return f"{path} {os.stat(path).st_mtime_ns}" if path else ""
    except OSError:
        return ""


class ImportMemory:
    """The files that store what earlier runs learned about one script and one set of libraries."""

    def __init__(
        self,
        environment: Mapping[str, str],
        python: str,
        version: str,
        *about: str,
        rules: Sequence[Path] = RULES,
    ) -> None:
        """``environment`` gives the cache's directory. ``python`` and torch's ``version`` identify
        an environment of libraries, and ``about`` a script in it.
        """
        root = environment.get("XDG_CACHE_HOME") or os.path.join(
            environment.get("HOME") or os.path.expanduser("~"), ".cache"
        )
        self._script = _place(root, "preload", python, version, *about)
        said = (rule.read_text() for rule in rules)
        self._libraries = _place(root, "libraries", python, version, *said)

    def recall(self) -> Learned:
        """Return the stored knowledge."""
        learned = self._verdicts()
        try:
            content = json.loads(self._script.read_bytes())
            return replace(
                learned,
                modules=tuple(str(name) for name in content["modules"]),
                environment={str(k): str(v) for k, v in content["environment"].items()},
                hidden=tuple(str(name) for name in content.get("hidden", ())),
                exact=bool(content.get("exact")),
                plain=str(content.get("plain", "")),
                text=str(content.get("text", "")),
                lacks=bool(content.get("lacks")),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return learned

    def _verdicts(self) -> Learned:
        try:
            content = json.loads(self._libraries.read_bytes())
            unsafe = {str(k): str(v) for k, v in content["unsafe"].items()}
            stamps = {str(k): str(v) for k, v in content["stamps"].items()}
            proven = frozenset(str(name) for name in content.get("proven", ()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return Learned()
        return Learned(unsafe=unsafe, stamps=stamps, proven=proven).current()

    def keep(self, learned: Learned) -> None:
        """Write the knowledge to disk; each file is replaced atomically.

        Raises:
            OSError: the cache cannot be written.
        """
        said = {
            "modules": learned.modules,
            "environment": learned.environment,
            "hidden": learned.hidden,
            "exact": learned.exact,
            "plain": learned.plain,
            "text": learned.text,
            "lacks": learned.lacks,
        }
        _write(self._script, said)
        known = self._verdicts()  # those of another script's agent, too
        unsafe, stamps = {**known.unsafe, **learned.unsafe}, {**known.stamps, **learned.stamps}
        proven = known.proven | learned.proven
        if (unsafe, stamps, proven) != (known.unsafe, known.stamps, known.proven):
            verdicts = {"unsafe": unsafe, "stamps": stamps, "proven": sorted(proven)}
            _write(self._libraries, verdicts)


def _place(root: str, kind: str, *key: str) -> Path:
    name = hashlib.sha256("\0".join(key).encode(errors="replace")).hexdigest()[:32]
    return Path(root, "elastic-brain", f"{kind}-{name}.json")


def _write(path: Path, said: Mapping[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, half = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "w") as file:
            json.dump(said, file)
        os.replace(half, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(half)
        raise


def read_report(path: str) -> ImportReport:
    """Read a worker's report of its imports and settings; empty if it cannot be read."""
    try:
        content = json.loads(Path(path).read_bytes())
        modules = tuple(str(name) for name in content["modules"])
        environment = {str(k): str(v) for k, v in content["environment"].items()}
        return ImportReport(
            modules=modules, environment=environment, exact=bool(content.get("exact"))
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ImportReport()


def read_settings(path: str) -> ImportSettings | None:
    """Read a worker's report of its settings that differ from the fork server's; None if it cannot
    be read.
    """
    try:
        content = json.loads(Path(path).read_bytes())
        given = content["environment"]
        own = None if given is None else {str(k): str(v) for k, v in given.items()}
        names = tuple(str(name) for name in content["names"])
        return ImportSettings(environment=own, again=bool(content["again"]), names=names)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
