"""The file with the batch size that Brain chose for a script; in workers, BRAIN_BATCH_FILE names
it.

``launcher.batch`` reads the file; docs/guides/launcher.md describes it. With ``--auto_tunning``,
DLRover's ElasticDataLoader reads the file's field ``dataloader``.
"""

from collections.abc import Callable
from pathlib import Path

from brain.types.batch import BatchWish
from launcher.values.console import say
from launcher.values.replica import write


class BatchFile:
    """The batch file of one agent, rewritten when the desired batch size or the world changes."""

    def __init__(self, path: str | None, say: Callable[[str], None] = say) -> None:
        self._path, self._say = None if path is None else Path(path), say
        #: The desired batch, as last heard.
        self.desired: BatchWish | None = None
        self._written: tuple[BatchWish, int] | None = None
        self._version = 0
        #: Why it could not be written.
        self._full = ""

    def tell(self, processes: int) -> None:
        """Write the desired batch size with ``keep``. If this fails, print the error, unless the
        last printed error was the same.
        """
        try:
            self.keep(self.desired, processes)
            self._full = ""
        except OSError as full:
            if self._full != str(full):
                self._full = str(full)
                self._say(f"the batch size that Brain chose does not reach the script: {full}")

    def keep(self, desired: BatchWish | None, processes: int) -> None:
        """Write the desired batch size for a world of ``processes`` workers.

        Raises:
            OSError: the file cannot be written.
        """
        if self._path is None or desired is None or self._written == (desired, processes):
            return
        self._version += 1
        local, accumulation = desired.split(processes)
        said = {
            "v": 1,
            "batch": local,
            "accumulation": accumulation,
            "learning_rate_scale": desired.learning_rate_scale,
            "global_batch": desired.global_size,
            "local_most": desired.local_most,
            "dataloader": {"version": self._version, "batch_size": local},
        }
        write(self._path, said, durable=False)
        self._written = desired, processes


def batch_environment(path: str | None, *, dlrover: bool) -> dict[str, str]:
    """Return the environment variables that name the batch file to a script."""
    if path is None:
        return {}
    return {"BRAIN_BATCH_FILE": path} | ({"DLROVER_PARAL_CONFIG_PATH": path} if dlrover else {})
