"""CPU, memory and network needs of one size, from the use of similar jobs' replicas."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from brain.errors import Undetermined
from brain.models.estimate.past import Neighbour, WorldUse
from brain.models.fitting import Z90, Point
from brain.models.resources import cpu, host_memory
from brain.models.terms import local_batch
from brain.types.estimate import Band

T = TypeVar("T")

#: Percentile of several neighbours' use that counts as the need (models.md section 3.5).
_MOST_OF_THEM = 80.0
#: Most bytes of a checkpoint per byte of weights: Adam stores two moments beside them. The least
#: is 1.
_CHECKPOINTS = 3.0
#: Hours of readings after which memory is checked for growth.
_HOURS = 4


@dataclass(frozen=True, slots=True)
class Needs:
    """A replica's needs at each size, taken from the use of similar jobs."""

    alike: Sequence[Neighbour]

    def cpu_millis(self, replicas: int) -> Band | None:
        """Return the mCPU that a replica should reserve; the band reaches from the median use to
        the 99.9 % quantile.

        If workers waited for data and used all their CPU, their need was larger than their use. The
        value is then at least the CPU with which loading is as fast as computing.
        """
        share = cpu.percentile(replicas)
        loading = self._loading()
        found = self._over(
            [one.cpu for one in self._uses() if one.cpu.weights],
            value=lambda used: cpu.request(used, share=share),
            low=lambda used: used.quantile(0.5),
            high=lambda used: cpu.request(used, share=0.999),
        )
        if found is None or loading <= found.value:
            return found
        return Band(value=loading, low=found.value, high=max(found.high, 1.5 * loading))

    @property
    def starved(self) -> float:
        """Return the share of a step for which similar jobs that lacked CPU waited for data."""
        return max((use.wait_share for _, use in self._starving()), default=0.0)

    def _loading(self) -> float:
        """Return the mCPU that similar jobs short of CPU would have needed; 0 if none was short."""
        wanted = [
            cpu.loader_millis(
                used_millis=use.cpu.quantile(0.5),
                idle_millis=0.0,
                step_seconds=point.step_seconds,
                device_seconds=point.step_seconds * (1 - use.wait_share),
            )
            for point, use in self._starving()
        ]
        return max(wanted, default=0.0)

    def _starving(self) -> list[tuple[Point, WorldUse]]:
        """Return the worlds that waited for data and used up their CPU limit."""
        found = []
        for one in self.alike:
            for point in one.past.points:
                use = one.past.use(point)
                if use is None or not use.cpu.weights or not 0 < use.wait_share < 1:
                    continue
                limit = one.past.reserved_millis
                full = limit > 0 and cpu.censored(use.cpu, limit_millis=limit)
                signs = cpu.LoaderSigns(data_wait_share=use.wait_share, censored=full)
                if cpu.loader_bound(signs):
                    found.append((point, use))
        return found

    def memory_bytes(self, seconds: float | None) -> Band | None:
        """Return the memory that a replica should reserve for ``seconds`` of training; runs whose
        memory leaked do not count.
        """

        def wanted(use: WorldUse) -> float:
            return host_memory.request(use.memory_bytes, grows=_growth(use), seconds=seconds or 0.0)

        sound = [use for one in self.alike if not one.past.leaked for use in one.past.uses]
        return self._over(
            [use for use in sound if use.readings and use.memory_bytes > 0],
            value=wanted,
            low=lambda use: use.memory_bytes,
            high=lambda use: 1.5 * wanted(use),
        )

    @property
    def leaky(self) -> list[str]:
        """Return the names of similar jobs whose memory leaked."""
        return [one.past.name for one in self.alike if one.past.leaked]

    def device_bytes(self, accelerator: str, batch: float) -> tuple[Band, float] | None:
        """Return a device's peak memory at a local batch size, and the device's capacity; None if
        unknown.
        """
        seen = [
            (local_batch(point), use.device_bytes, use.device_total_bytes or 0.0)
            for point, use in self._worlds()
            if point.accelerator == accelerator and use.device_bytes and use.device_total_bytes
        ]
        if not seen:
            return None
        from brain.models.resources.gpu_memory import DeviceMemory

        model = DeviceMemory().fit([[size] for size, _, _ in seen], [used for _, used, _ in seen])
        mean, spread = model.predict([[batch]], return_std=True)
        half = Z90 * float(spread[0])
        band = Band(value=float(mean[0]), low=max(0.0, mean[0] - half), high=mean[0] + half)
        return band, max(has for _, _, has in seen)

    def network(self, nodes: int, step_seconds: float, examples_per_second: float) -> Band | None:
        """Return the bytes per second through a node's network card, in the busier direction.

        An all-reduce over a ring sends ``2 (n - 1) / n`` of the gradients' bytes per node and step
        (Patarasuk and Yuan, 2009). Loading adds the bytes per example that similar jobs received.
        """
        loaded = self._loaded()
        load = (loaded or 0.0) * examples_per_second / nodes
        if nodes == 1:
            return None if loaded is None else Band(value=load, low=load / 2, high=load * 2)
        volume = self._volume()
        if volume is None:
            return None
        times = 2 * (nodes - 1) / nodes / step_seconds
        return Band(
            value=volume.value * times + load,
            low=volume.low * times + load / 2,
            high=volume.high * times + load * 2,
        )

    @property
    def gradients_measured(self) -> bool:
        """Return True if any similar job ran over several nodes."""
        return any(point.nodes > 1 and use.sent_bytes_per_second for point, use in self._worlds())

    def _volume(self) -> Band | None:
        """Return the bytes of gradients per node and step, as measured, else derived from the
        checkpoint.
        """
        seen = [
            use.sent_bytes_per_second * point.step_seconds * point.nodes / (2 * (point.nodes - 1))
            for point, use in self._worlds()
            if point.nodes > 1 and use.sent_bytes_per_second > 0
        ]
        if seen:
            middle = float(np.median(seen))
            return Band(value=middle, low=min(middle / 1.25, *seen), high=max(middle * 1.25, *seen))
        saved = [one.past.checkpoint_bytes for one in self.alike if one.past.checkpoint_bytes]
        if not saved:
            return None
        size = float(np.median(saved))
        return Band(value=size / math.sqrt(_CHECKPOINTS), low=size / _CHECKPOINTS, high=size)

    def _loaded(self) -> float | None:
        """Return the bytes received per example (or step) on one node, if no gradients are
        exchanged.
        """
        seen = [
            use.received_bytes_per_second / point.rate
            for point, use in self._worlds()
            if point.nodes == 1 and point.rate > 0
        ]
        return float(np.median(seen)) if seen else None

    def _uses(self) -> list[WorldUse]:
        return [use for one in self.alike for use in one.past.uses if use.readings]

    def _worlds(self) -> list[tuple[Point, WorldUse]]:
        pairs = [(p, one.past.use(p)) for one in self.alike for p in one.past.points]
        return [(point, use) for point, use in pairs if use is not None and use.readings]

    def _over(
        self,
        uses: Sequence[T],
        *,
        value: Callable[[T], float],
        low: Callable[[T], float],
        high: Callable[[T], float],
    ) -> Band | None:
        """Return the value that most uses stay below, with the least and the most of all uses."""
        if not uses:
            return None
        wanted = float(np.percentile([value(use) for use in uses], _MOST_OF_THEM))
        return Band(
            value=wanted,
            low=min(wanted, *(low(use) for use in uses)),
            high=max(wanted, *(high(use) for use in uses)),
        )


def _growth(use: WorldUse) -> host_memory.Growth | None:
    if len(use.hourly_bytes) < _HOURS:
        return None
    try:
        return host_memory.growth(
            use.hourly_bytes, limit_bytes=host_memory.request(use.memory_bytes)
        )
    except Undetermined:
        return None
