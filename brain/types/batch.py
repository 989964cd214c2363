"""The batch that a script is asked to take, where it asks to be told."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWish:
    """Examples of an optimizer step over all workers, and how to make them.

    It holds for any number of workers: a world of another size makes the same global batch.
    """

    global_size: int
    #: Most examples of one micro-batch of one worker.
    local_most: int
    #: What the learning rate of the first batch is to be multiplied by (AdaScale's gain, which is
    #: 1 for the first batch and never more than the ratio of both).
    learning_rate_scale: float = 1.0

    def split(self, workers: int) -> tuple[int, int]:
        """Examples of a worker's micro-batch, and micro-batches of an optimizer step.

        Whole examples: the global batch may come out larger by less than one per micro-batch.

        >>> BatchWish(global_size=256, local_most=48).split(2)
        (43, 3)
        """
        share = -(-self.global_size // workers)
        accumulation = -(-share // self.local_most)
        return -(-share // accumulation), accumulation
