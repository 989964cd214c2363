"""The batch of a script that lets Brain choose it: three lines, the standard library alone.

    batch = Batch(32)                        # what it takes where nobody advises
    loader = DataLoader(data, batch_size=batch.local, ...)
    ...
        if step % 50 == 0 and batch.renew():  # at the same step in all ranks
            loader = DataLoader(data, batch_size=batch.local, ...)

``batch.accumulation`` micro-batches make an optimizer step, and the learning rate of the first
batch is to be multiplied by ``batch.learning_rate_scale``. Brain chooses where the job says
``batch.tune``, or has ``--auto_tunning`` in its command; elsewhere nothing ever changes.
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
    """The batch that this worker takes now."""

    def __init__(
        self, local: int, accumulation: int = 1, environ: Mapping[str, str] | None = None
    ) -> None:
        """Begin with the script's own choice, or with what it is told already."""
        self._environ = os.environ if environ is None else environ
        #: Examples of a micro-batch, and micro-batches of an optimizer step.
        self.local, self.accumulation = local, accumulation
        self.learning_rate_scale = 1.0
        self._take(self._read())

    def renew(self) -> bool:
        """Read again; True where something is another now.

        All ranks must call it at the same step: what rank 0 reads holds for all of them.
        """
        return self._take(_of_rank_0(self._read()))

    def _take(self, found: tuple[int, int, float] | None) -> bool:
        before = (self.local, self.accumulation, self.learning_rate_scale)
        if found is None or found == before:
            return False
        self.local, self.accumulation, self.learning_rate_scale = found
        return True

    def _read(self) -> tuple[int, int, float] | None:
        """Read the batch file, for the present number of workers; None where it says nothing."""
        path = self._environ.get("BRAIN_BATCH_FILE")
        if not path:
            return None
        try:
            with open(path, encoding="utf-8") as file:
                said = json.load(file)
            workers = int(self._environ.get("WORLD_SIZE", 1))
            share = -(-int(said["global_batch"]) // workers)
            accumulation = -(-share // int(said["local_most"]))
            return -(-share // accumulation), accumulation, float(said["learning_rate_scale"])
        except (OSError, ValueError, KeyError, TypeError, ArithmeticError):
            return None  # there is no file, or Brain chose no batch


def _of_rank_0(found: Any) -> Any:
    """Return rank 0's finding if a process group is initialized, else ``found`` itself."""
    torch = sys.modules.get("torch")
    groups = getattr(torch, "distributed", None)
    if groups is None or not groups.is_available() or not groups.is_initialized():
        return found
    box = [found]
    groups.broadcast_object_list(box, src=0)
    return box[0]
