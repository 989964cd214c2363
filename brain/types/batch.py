"""The batch size that Brain chooses for a script that reads it from ``launcher.batch``."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWish:
    """The requested examples per optimizer step over all workers, and the limit of a micro-batch.

    The request is valid for any number of workers, because a world of another size makes the same
    global batch.
    """

    global_size: int
    #: Most examples of one micro-batch of one worker.
    local_most: int
    #: Factor on the learning rate of the first batch (AdaScale's gain, which is 1 for the first
    #: batch and never more than the ratio of the batches).
    learning_rate_scale: float = 1.0

    def split(self, workers: int) -> tuple[int, int]:
        """Return the number of examples in a worker's micro-batch, and of micro-batches per step.

        A micro-batch has a whole number of examples, so the global batch may exceed the request,
        but by less than one example per micro-batch.

        >>> BatchWish(global_size=256, local_most=48).split(2)
        (43, 3)
        """
        share = -(-self.global_size // workers)
        accumulation = -(-share // self.local_most)
        return -(-share // accumulation), accumulation
