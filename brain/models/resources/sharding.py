"""Device memory of a job that shards its state over its workers: fewer workers hold more each."""

from dataclasses import dataclass

from brain.models.resources.use import USABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedMemory:
    """The most device memory that workers used at each size that was read.

    With FSDP or ZeRO a worker of ``n`` holds an ``n``-th of the sharded state, so a peak of ``b``
    bytes at ``n`` workers becomes at most ``b n / n'`` at ``n' < n``: as if all of it were sharded,
    because its fixed part is unknown. No peak is larger than one that was read at fewer workers.

    >>> memory = ShardedMemory(peaks=((4, 10e9),), capacity_bytes=24e9)
    >>> memory.most(2), memory.fits(2), memory.fits(1)
    (20000000000.0, True, False)
    >>> ShardedMemory(peaks=((4, 10e9), (2, 18e9)), capacity_bytes=24e9).fits(2)
    True
    """

    #: Replicas, at least one entry, and the bytes of the fullest device.
    peaks: tuple[tuple[int, float], ...]
    #: Bytes of the smallest device.
    capacity_bytes: float

    def most(self, replicas: int) -> float:
        """Return an upper bound of the bytes that a worker needs at a size."""
        return min(used * max(1.0, size / replicas) for size, used in self.peaks)

    def fits(self, replicas: int) -> bool:
        """Return True if a device surely holds a worker's part at a size."""
        return self.most(replicas) <= USABLE * self.capacity_bytes
