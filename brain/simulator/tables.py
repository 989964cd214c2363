"""Applications from published measurements: step times by placement, gradient noise by batch.

The tables come from the artifacts of Pollux (OSDI 2021) and Sia (SOSP 2023). Each application has a
folder:

    placements[-KIND].csv     placement (a digit per node), local_bsz, step_time, sync_time
    scalability[-KIND].csv    num_nodes, num_replicas, local_bsz, step_time, sync_time
    validation-BATCH.csv      a row per epoch: progress, iteration, grad_sqr, grad_var

``benchmarks/jct`` reads the same tables with the interpolation of the published simulators. This
module treats placements that differ only in the order of nodes as equal, and interpolates missing
measurements on a logarithmic scale.
"""

import csv
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator

from brain.errors import BadInput
from brain.simulator.applications import DeviceKind, Shape

Floats = NDArray[np.float64]
#: Seconds below which gradients count as not exchanged.
_NONE = 1e-9
#: Step and synchronisation seconds of a local batch.
_Times = tuple[float, float]


@dataclass(slots=True)
class Timetable:
    """Step times of one application on one kind of node."""

    #: Rows of local batch, step and sync seconds by shape (replicas per node, largest first).
    shapes: Mapping[Shape, Floats]
    #: Rows of nodes, replicas, local batch, step and sync seconds.
    rows: Floats
    _found: dict[tuple[Shape, int], _Times] = field(default_factory=dict)
    #: Interpolation between and around the measurements, built at its first use.
    _surfaces: tuple[LinearNDInterpolator, NearestNDInterpolator] | None = None

    def at(self, shape: Shape, local: int) -> _Times:
        """Return the seconds of a step and of its synchronisation; a local batch size outside the
        measured ones counts as the nearest measured one.
        """
        key = tuple(sorted(shape, reverse=True)), local
        if key not in self._found:
            self._found[key] = self._look(*key)
        return self._found[key]

    def _look(self, shape: Shape, local: int) -> _Times:
        table = self.shapes.get(shape)
        if table is None:
            return self._between(len(shape), sum(shape), local)
        step, sync = (float(np.interp(local, table[:, 0], column)) for column in table[:, 1:].T)
        return step, sync

    def _between(self, nodes: int, replicas: int, local: int) -> _Times:
        if self._surfaces is None:
            where, times = np.log2(self.rows[:, :3]), np.log(np.maximum(self.rows[:, 3:], _NONE))
            self._surfaces = (
                LinearNDInterpolator(where, times),
                NearestNDInterpolator(where, times),
            )
        asked = np.log2([[nodes, replicas, local]])
        found = self._surfaces[0](asked)[0]
        if np.isnan(found).any():
            found = self._surfaces[1](asked)[0]
        step, sync = np.exp(found)
        return float(step), float(min(sync, step))


@dataclass(frozen=True, kw_only=True)
class Measured:
    first_batch: int
    largest_batch: int
    epochs: int
    #: By kind of node.
    times: Mapping[str, Timetable]
    #: By batch, rising: noise scale of each epoch, in examples.
    noises: Mapping[int, Floats]
    #: Work of a whole run, in examples of the first batch.
    examples: float
    restart_seconds: float | None = None

    def seconds(self, device: DeviceKind, shape: Shape, local: int, accumulation: int) -> float:
        """Return the seconds of an optimizer step; micro-batches before the last do not
        synchronise.
        """
        step, sync = self.times[device.name].at(shape, local)
        return step + (accumulation - 1) * (step - sync)

    def holds(self, device: DeviceKind) -> int:
        """Return the largest micro-batch that was measured on this kind of device."""
        return int(self.times[device.name].rows[:, 2].max())

    def noise(self, share: float, batch: int) -> float:
        """Return the gradient noise scale that was measured with the nearest batch size."""
        nearest = min(self._batches, key=lambda known: abs(math.log(known / batch)))
        noises = self.noises[nearest]
        return float(noises[min(int(share * len(noises)), len(noises) - 1)])

    @cached_property
    def _batches(self) -> Sequence[int]:
        return tuple(self.noises)


def measured(name: str, texts: Mapping[str, str], kinds: Sequence[str]) -> Measured:
    """Read the tables of one application.

    Args:
        texts: Contents of the files in the application's folder, by file name.
        kinds: Kinds of nodes that the application will run on. A kind without tables of its own
            uses the tables without a kind in their name.

    Raises:
        BadInput: a table is missing or cannot be read; the message names file and column.
    """
    reader = _Reader(name, texts)
    runs = reader.runs()
    first = min(runs)
    times = {kind: reader.timetable(kind) for kind in kinds}
    progress = min(float(run[-1, 0]) for run in runs.values())
    return Measured(
        first_batch=first,
        largest_batch=max(runs),
        epochs=len(runs[first]),
        times=times,
        noises={batch: _noises(runs[batch], first) for batch in sorted(runs)},
        examples=progress * first,
    )


def _noises(run: Floats, first: int) -> Floats:
    """Return the noise scale of each row: first batch x variance / square, with both statistics
    scaled to the first batch.
    """
    square, variance = run[:, 1], run[:, 2]
    found: Floats = np.clip(first * variance / np.maximum(square, 1e-30), 0.1 * first, 1e4 * first)
    return found


@dataclass(frozen=True, slots=True)
class _Reader:
    name: str
    texts: Mapping[str, str]

    def runs(self) -> dict[int, Floats]:
        """By batch: progress, squared norm and variance of the gradient, a row per epoch."""
        found = {}
        for file in self.texts:
            batch = file.removeprefix("validation-").removesuffix(".csv")
            if file.startswith("validation-") and batch.isdigit():
                found[int(batch)] = self.numbers(file, ("progress", "grad_sqr", "grad_var"))
        if not found:
            raise BadInput(
                f"application {self.name} has no validation-BATCH.csv; add one per batch size",
                field=self.name,
            )
        return found

    def timetable(self, kind: str) -> Timetable:
        """Step times on a kind of node."""
        shapes: dict[Shape, list[Floats]] = defaultdict(list)
        placements = self._file("placements", kind)
        for row, numbers in zip(
            self.rows(placements),
            self.numbers(placements, ("local_bsz", "step_time", "sync_time")),
            strict=True,
        ):
            placement = row["placement"] or ""
            if not placement.isdigit():
                raise BadInput(f"{self.name}/{placements}: placement {placement!r} is not a number")
            shapes[tuple(sorted(map(int, placement), reverse=True))].append(numbers)
        tables = {shape: _merged(np.array(rows)) for shape, rows in shapes.items()}
        every = [
            np.insert(table, 0, [[len(shape)], [sum(shape)]], axis=1)
            for shape, table in tables.items()
        ]
        scale = self._file("scalability", kind)
        if scale in self.texts:
            columns = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
            every.append(self.numbers(scale, columns))
        rows = np.vstack(every)
        if (rows[:, :4] <= 0).any() or (rows[:, 4] < 0).any():
            raise BadInput(
                f"{self.name}: a batch, a placement or a step time for nodes {kind!r} is not "
                "above 0; correct it"
            )
        return Timetable(tables, rows)

    def _file(self, table: str, kind: str) -> str:
        own = f"{table}-{kind}.csv"
        plain = f"{table}.csv"
        if own in self.texts or (table == "scalability" and f"placements-{kind}.csv" in self.texts):
            return own
        if table == "placements" and plain not in self.texts:
            raise BadInput(
                f"application {self.name} was not measured on nodes {kind!r}: its folder has "
                f"neither {own} nor {plain}; rename the kind of node or add the table",
                field=f"nodes.{kind}",
            )
        return plain

    def rows(self, file: str) -> list[dict[str, str]]:
        return list(csv.DictReader(self.texts[file].splitlines()))

    def numbers(self, file: str, columns: Sequence[str]) -> Floats:
        rows = self.rows(file)
        try:
            table = np.array([[float(row[column]) for column in columns] for row in rows])
        except KeyError as missing:
            raise BadInput(f"{self.name}/{file} has no column {missing}; add it") from missing
        except (TypeError, ValueError) as bad:
            raise BadInput(f"{self.name}/{file} has a cell that is not a number: {bad}") from bad
        if not rows or not np.isfinite(table).all():
            raise BadInput(
                f"{self.name}/{file} is empty or has a value that is not a finite number; "
                "correct it"
            )
        return table


def _merged(rows: Floats) -> Floats:
    """Return one row per local batch, in rising order: the mean of its measurements."""
    batches = np.unique(rows[:, 0])
    return np.array([rows[rows[:, 0] == batch].mean(axis=0) for batch in batches])
