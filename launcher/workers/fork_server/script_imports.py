"""The modules that a fork server imports ahead of one script, by what earlier runs learned."""

import hashlib
from collections.abc import Callable

from launcher.command.torchrun import description
from launcher.values.config import LaunchConfig
from launcher.workers.fork_server import command as commands
from launcher.workers.fork_server import learned
from launcher.workers.fork_server.command import PythonCommand
from launcher.workers.fork_server.learned import Learned

#: What a torch script imports in the end; the last one lazily, as it makes its first optimizer.
TORCH = ("torch", "torch.distributed", "torch.nn.parallel.distributed", "torch._dynamo")


class ScriptImports:
    """The imports of the script that ``command`` runs; none are known for other commands."""

    def __init__(
        self, config: LaunchConfig, command: PythonCommand | None, say: Callable[[str], None]
    ) -> None:
        self._config, self._command, self._say = config, command, say
        python = config.entrypoint.argv[0]
        torch = None if command is None else description.installed_torch(python)
        self._torch = torch is not None
        about = commands.identity(command, config.directory) if command else ()
        version = "" if torch is None else torch.version + torch.digest
        self.memory = learned.ImportMemory(config.environment, python, version, *about)
        self.known = Learned()
        #: Directory from which the script's own modules are imported.
        self.first: str | None = None
        if command is not None:
            self.first = commands.first_path(command, config.directory, config.environment)

    @property
    def learns(self) -> bool:
        """True if a worker's report of its imports is needed."""
        return self._command is not None and self._config.preload in ("learned", "parked")

    def recall(self) -> None:
        """Take over what earlier runs learned."""
        if self.learns:
            self.known = self.memory.recall().for_text(self.text())

    def learn(self, known: Learned) -> None:
        """Store new knowledge, also for the next run."""
        self.known = known
        try:
            self.memory.keep(known)
        except OSError as cannot:
            self._say(f"the script's imports cannot be remembered: {cannot}")

    def text(self) -> str:
        """Return a digest of the script's text; empty if it is not known."""
        source = self._source()
        return hashlib.sha256(source).hexdigest() if source else ""

    def safe(self) -> tuple[str, ...]:
        """Return the modules whose import a world may wait for, because the import is known to be
        safe.
        """
        return tuple(filter(self.known.is_proven, self.wanted()))

    def wanted(self) -> tuple[str, ...]:
        """Return the modules to import ahead."""
        if self._command is None or self._config.preload == "none":
            return ()
        if commands.has_modules(self.first, self.known.hidden):
            return ()
        if self.known.modules:
            return self.known.preload(TORCH if "torch" in self.known.modules else ())
        wants = self._torch and commands.wants_torch(self._source())
        return self.known.preload(TORCH if wants else ())

    def _source(self) -> bytes | None:
        command, config = self._command, self._config
        if command is None:
            return None
        python = config.entrypoint.argv[0]
        places = commands.search_path(command, python, config.directory, config.environment)
        return commands.source_of(command, config.directory, places)
