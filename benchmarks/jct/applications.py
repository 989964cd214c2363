"""Measurements of the applications: step times by placement, and gradients by batch size.

The tables are those of Pollux's artifact (``benchmarks/data/pollux/traces``). For a placement that
was measured, step times are interpolated between its local batch sizes. For any other placement
they are interpolated over nodes, replicas and local batch sizes, as in Pollux's simulator (Qiao et
al., OSDI 2021).
"""

import csv
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import LinearNDInterpolator

from brain.errors import BadInput

Floats = NDArray[np.float64]

#: Applications that both simulators know.
NAMES = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3")
#: Largest local batches that the simulator sets apart from the tables' own.
_LARGEST_LOCAL = {"yolov3": 8}
#: One GPU and the largest batch is all that these are given, by every policy.
_FIXED = ("ncf",)
#: Placements beyond this many nodes were not measured; they count as this many.
_NODES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """One training run with one batch size; each field has a value per epoch."""

    progress: Floats
    iterations: Floats
    squares: Floats
    variances: Floats


@dataclass(kw_only=True)
class Application:
    """One application on one kind of node."""

    name: str
    #: That a job trains for: as many as the tables have.
    epochs: int
    #: Batch sizes that were trained with, rising, and what came of them.
    runs: Mapping[int, Validation]
    #: By placement (GPUs per node, in their order): local batches, rising, with columns
    #: step seconds and synchronisation seconds.
    placements: Mapping[tuple[int, ...], tuple[Floats, Floats]]
    #: Nodes, replicas, local batch of further measurements, and the same two columns.
    scale: tuple[Floats, Floats]
    smallest_local: int
    largest_local: int
    #: Whether it trains on one GPU with its largest batch, whoever schedules it.
    fixed: bool = False
    _times: dict[tuple[tuple[int, ...], int], tuple[float, float]] = field(default_factory=dict)
    _gradients: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)

    @cached_property
    def batches(self) -> list[int]:
        """Return the batch sizes with which the application was trained."""
        return sorted(self.runs)

    @property
    def first_batch(self) -> int:
        """Return the batch size in whose steps progress is counted."""
        return self.batches[0]

    @property
    def largest_batch(self) -> int:
        """Return the largest batch size with which the application was trained."""
        return self.batches[-1]

    @cached_property
    def progress(self) -> list[float]:
        """Return the number of steps with the first batch size that each number of epochs takes,
        from 0 epochs on.
        """
        least = [
            min(float(run.progress[epoch]) for run in self.runs.values())
            for epoch in range(self.epochs)
        ]
        return [0.0, *least]

    def iterations(self, batch: int, epoch: int) -> float:
        """Return the number of steps with ``batch`` until the end of an epoch (counted from 0)."""
        return self._between(batch, lambda run: float(run.iterations[epoch]))

    def gradients(self, batch: int, epoch: int) -> tuple[float, float]:
        """Return the squared norm and the variance of gradients of ``batch`` examples in an epoch
        (counted from 0).
        """
        found = self._gradients.get((batch, epoch))
        if found is None:
            found = (
                self._between(batch, lambda run: float(run.squares[epoch])),
                self._between(batch, lambda run: float(run.variances[epoch])),
            )
            self._gradients[batch, epoch] = found
        return found

    def seconds(self, placement: tuple[int, ...], local_batch: int) -> tuple[float, float]:
        """Return the seconds of a step that synchronises, and the part of them for the
        synchronisation.

        Args:
            placement: GPUs per node, nodes in the order of the ring.
            local_batch: Examples per GPU.

        Raises:
            BadInput: nothing was measured around it.
        """
        key = (placement, local_batch)
        if key not in self._times:
            self._times[key] = self._measured(placement, local_batch)
        return self._times[key]

    def _measured(self, placement: tuple[int, ...], local_batch: int) -> tuple[float, float]:
        ring = min(placement[i:] + placement[:i] for i in range(len(placement)))
        if ring in self.placements:
            batches, times = self.placements[ring]
            if batches[0] <= local_batch <= batches[-1]:
                step, sync = (np.interp(local_batch, batches, column) for column in times.T)
                return float(step), float(sync)
            found = np.full(2, np.nan)
        else:
            found = self.surface([min(len(ring), _NODES), sum(ring), local_batch])[0]
        if np.isnan(found).any():
            raise BadInput(
                f"{self.name} on {placement} with local batch {local_batch} lies outside of what "
                "was measured; choose a placement or batch within the tables"
            )
        return float(found[0]), float(found[1])

    @cached_property
    def surface(self) -> LinearNDInterpolator:
        """Return the step times over nodes, replicas and local batch size; placements that agree in
        these are averaged.
        """
        alike: dict[tuple[float, float, float], list[Floats]] = defaultdict(list)
        for placement, (batches, times) in self.placements.items():
            for batch, row in zip(batches, times, strict=True):
                alike[len(placement), sum(placement), float(batch)].append(row)
        keys = sorted(alike)
        X, y = self.scale
        means = np.array([np.mean(alike[key], axis=0) for key in keys])
        return LinearNDInterpolator(np.vstack([np.array(keys), X]), np.vstack([means, y]))

    def _between(self, batch: int, value: Callable[[Validation], float]) -> float:
        """Return a value interpolated between the runs with the next smaller and next larger batch
        size.
        """
        above = bisect_left(self.batches, batch)
        below = bisect_right(self.batches, batch) - 1
        if below < 0 or above == len(self.batches):
            raise BadInput(
                f"{self.name} was not trained with batch {batch}; choose one from "
                f"{self.first_batch} to {self.largest_batch}"
            )
        low, high = self.batches[below], self.batches[above]
        if low == high:
            return value(self.runs[low])
        share = (batch - low) / (high - low)
        return share * value(self.runs[high]) + (1 - share) * value(self.runs[low])


def applications(data: Path) -> dict[str, Application]:
    """Return all applications under ``data/pollux/traces``, by name."""
    found = {name: application(data / "pollux/traces" / name) for name in NAMES}
    for name, largest in _LARGEST_LOCAL.items():
        found[name].largest_local = largest
    for name in _FIXED:
        found[name].fixed = True
    return found


def application(folder: Path, kind: str = "") -> Application:
    """Return the application of a folder, as measured on one ``kind`` of node; if ``kind`` is
    empty, on the only one.
    """
    suffix = f"-{kind}" if kind else ""
    placements = _placements(_rows(folder / f"placements{suffix}.csv"))
    batches = [batch for found, _ in placements.values() for batch in found]
    files = folder.glob("validation-*.csv")
    runs = {int(file.stem.rpartition("-")[2]): _validation(file) for file in files}
    return Application(
        name=folder.name,
        epochs=min(len(run.progress) for run in runs.values()),
        runs=runs,
        placements=placements,
        scale=_scale(_rows(folder / f"scalability{suffix}.csv")),
        smallest_local=int(min(batches)),
        largest_local=int(max(batches)),
    )


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open() as lines:
        return list(csv.DictReader(lines))


def _numbers(rows: Iterable[Mapping[str, str]], columns: Sequence[str]) -> Floats:
    return np.array([[float(row[name]) for name in columns] for row in rows])


def _validation(file: Path) -> Validation:
    columns = ("progress", "iteration", "grad_sqr", "grad_var")
    progress, iterations, squares, variances = _numbers(_rows(file), columns).T
    return Validation(
        progress=progress, iterations=iterations, squares=squares, variances=variances
    )


def _placements(
    rows: Iterable[Mapping[str, str]],
) -> dict[tuple[int, ...], tuple[Floats, Floats]]:
    grouped: dict[tuple[int, ...], list[Mapping[str, str]]] = defaultdict(list)
    for row in rows:
        grouped[tuple(map(int, row["placement"]))].append(row)
    found = {}
    for placement, alike in grouped.items():
        table = _numbers(alike, ("local_bsz", "step_time", "sync_time"))
        table = table[np.argsort(table[:, 0], kind="stable")]
        found[placement] = table[:, 0], table[:, 1:]
    return found


def _scale(rows: Sequence[Mapping[str, str]]) -> tuple[Floats, Floats]:
    table = _numbers(rows, ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time"))
    return table[:, :3], table[:, 3:]
