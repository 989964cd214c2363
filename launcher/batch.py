"""Let Brain choose a script's batch size, with three more lines in the script.

    batch = Batch(32)                        # the batch size if Brain chooses none
    loader = DataLoader(data, batch_size=batch.local, ...)
    ...
        if step % 50 == 0 and batch.renew():  # at the same step in all ranks
            loader = DataLoader(data, batch_size=batch.local, ...)

An optimizer step takes ``batch.accumulation`` micro-batches. The script multiplies the learning
rate of its first batch size by ``batch.learning_rate_scale``. Brain chooses the batch size of a job
with ``batch.tune`` in its document, or ``--auto_tunning`` in its command. The batch size of any
other job never changes. This module uses only the standard library.
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Batch:
    """The batch size of this worker in the present world: micro-batch, accumulation and
    learning-rate factor.
    """

    def __init__(
        self, local: int, accumulation: int = 1, environ: Mapping[str, str] | None = None
    ) -> None:
        """Begin with the batch that Brain chose already, else with the script's own."""
        self._environ = os.environ if environ is None else environ
        self._own = local, accumulation, 1.0
        #: Global batch, largest micro-batch, learning rate scale; None if Brain chose no batch.
        self._chosen = self._read()
        self._renewed = self._split()

    @property
    def local(self) -> int:
        """Number of examples in a micro-batch in the present world."""
        return self._split()[0]

    @property
    def accumulation(self) -> int:
        """Number of micro-batches in an optimizer step in the present world."""
        return self._split()[1]

    @property
    def learning_rate_scale(self) -> float:
        """Factor by which to multiply the learning rate that was set for the first batch size."""
        return self._split()[2]

    def renew(self) -> bool:
        """Read Brain's choice again; return True if the batch size has changed since the last call.

        All ranks must call this method at the same step, because they all use the value that rank 0
        reads.
        """
        self._chosen = _of_rank_0(self._read()) or self._chosen
        before, self._renewed = self._renewed, self._split()
        return self._renewed != before

    def _split(self) -> tuple[int, int, float]:
        """Split the global batch over the present world, whose size a session keeps up to date."""
        if self._chosen is None:
            return self._own
        size, most, scale = self._chosen
        share = -(-size // int(self._environ.get("WORLD_SIZE", 1)))
        accumulation = -(-share // most)
        return -(-share // accumulation), accumulation, scale

    def _read(self) -> tuple[int, int, float] | None:
        """Read the batch file; None if Brain chose no batch, or the file cannot be used."""
        path = self._environ.get("BRAIN_BATCH_FILE")
        if not path:
            return None
        try:
            with open(path, encoding="utf-8") as file:
                said = json.load(file)
            size, most = int(said["global_batch"]), int(said["local_most"])
            return (size, most, float(said["learning_rate_scale"])) if min(size, most) > 0 else None
        except (OSError, ValueError, KeyError, TypeError, ArithmeticError):
            return None


def _of_rank_0(found: Any) -> Any:
    """Return rank 0's finding if a process group is initialized, else ``found`` itself."""
    torch = sys.modules.get("torch")
    groups = getattr(torch, "distributed", None)
    if groups is None or not groups.is_available() or not groups.is_initialized():
        return found
    box = [found]
    groups.broadcast_object_list(box, src=0)
    return box[0]
