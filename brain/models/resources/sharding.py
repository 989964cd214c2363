"""Device memory of a job whose workers divide the training state; if there are fewer workers, each
holds a larger part.
"""

from dataclasses import dataclass

from brain.models.resources.use import USABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedMemory:
    """The highest device memory that workers used at each measured size.

    Workers divide state ``S`` among them (FSDP, ZeRO). Each of ``n`` workers holds ``S / n``, so a
    peak of ``b`` bytes at ``n`` workers becomes ``b + S / n' - S / n`` at ``n' < n``. If ``S`` is
    unknown, all of the peak is assumed to be divided. The bound for a size never exceeds a peak
    that was measured with fewer workers.

    >>> memory = ShardedMemory(peaks=((4, 10e9),), capacity_bytes=24e9)
    >>> memory.most(2), memory.fits(2), memory.fits(1)
    (20000000000.0, True, False)
    >>> ShardedMemory(peaks=((4, 10e9), (2, 18e9)), capacity_bytes=24e9).fits(2)
    True
    >>> known = ShardedMemory(peaks=((4, 10e9),), capacity_bytes=24e9, state_bytes=8e9)
    >>> known.most(2), known.fits(1)
    (12000000000.0, True)
    """

    #: Replicas, at least one entry, and the bytes of the fullest device.
    peaks: tuple[tuple[int, float], ...]
    #: Bytes of the smallest device.
    capacity_bytes: float
    #: Bytes of the divided state, over all workers that share one; None: unknown.
    state_bytes: float | None = None

    def most(self, replicas: int) -> float:
        """Return an upper bound on the bytes that each worker needs at a size."""
        return min(self._at(replicas, size, used) for size, used in self.peaks)

    def fits(self, replicas: int) -> bool:
        """Return True if the memory that each worker needs at a size certainly fits its device."""
        return self.most(replicas) <= USABLE * self.capacity_bytes

    def _at(self, replicas: int, size: int, used: float) -> float:
        """Return the bytes at a size by those ``used`` at another one."""
        part = used if self.state_bytes is None else min(used, self.state_bytes / size)
        return used + part * max(0.0, size / replicas - 1)
