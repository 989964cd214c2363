"""The step times that Pollux and Sia measured, as tasks, and the order in which a job sees them.

A task is an application on a kind of node: every (nodes, replicas, local batch size) that was
measured, with the mean seconds of a step and of its synchronisation. A trajectory is a sequence of
configurations as an elastic job would have them.
"""

import csv
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.published import SHIPPED

Floats = NDArray[np.float64]
#: Visibly synthetic: its times are exact multiples of each other.
_SYNTHETIC = "gpt_pmp"
#: Published twice: ``dgx-ext`` holds what ``dgx`` does, and more.
_SUPERSEDED = "dgx"
#: The nodes that Pollux measured on, as Sia, which publishes the same tables, calls them.
POLLUX_KIND = "aws"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One application on one kind of node."""

    application: str
    accelerator: str
    #: Columns of ``brain.models.step_time``: nodes, replicas, local batch, accumulation (1).
    X: Floats
    step_seconds: Floats
    compute_seconds: Floats
    #: Global batch at which efficiency is 1, and the gradient noise scale in mid training.
    first_batch: float
    noise_scale: float

    def goodput(self, log_seconds: Floats) -> Floats:
        """Return the useful examples per second of every row at these step times (Pollux, section
        3).
        """
        batch = self.X[:, 1] * self.X[:, 2]
        gain = (self.noise_scale + self.first_batch) / (self.noise_scale + batch)
        return batch * np.minimum(gain, 1.0) / np.exp(log_seconds)

    @property
    def name(self) -> str:
        """Return the task's name as it is printed."""
        return f"{self.application} on {self.accelerator}"


def tasks(sia: Path | None) -> list[Task]:
    """Return all tasks of Pollux and, if Sia's tables are given, Sia's, sorted by name."""
    found = [_task(folder, POLLUX_KIND, "") for folder in (SHIPPED / "pollux/traces").iterdir()]
    for folder in (sia / "traces").iterdir() if sia else ():
        kinds = {file.stem.partition("-")[2] for file in folder.glob("placements-*.csv")}
        if folder.name != _SYNTHETIC:
            found += [
                _task(folder, kind, f"-{kind}") for kind in kinds - {_SUPERSEDED, POLLUX_KIND}
            ]
    return sorted(found, key=lambda task: (task.application, task.accelerator))


def _task(folder: Path, kind: str, suffix: str) -> Task:
    times: dict[tuple[int, int, int], list[tuple[float, float]]] = defaultdict(list)
    for table in ("placements", "scalability"):
        file = folder / f"{table}{suffix}.csv"
        if not file.exists():
            continue
        with file.open() as lines:
            for row in csv.DictReader(lines):
                where = (*_where(row), round(float(row["local_bsz"])))
                step = float(row["step_time"])
                times[where].append((step, max(step - float(row["sync_time"]), 1e-3 * step)))
    keys = sorted(times)
    first, noise = _noise(folder)
    means = np.array([np.mean(times[key], axis=0) for key in keys])
    return Task(
        application=folder.name,
        accelerator=kind,
        X=np.array([(*key, 1) for key in keys], dtype=np.float64),
        step_seconds=means[:, 0],
        compute_seconds=means[:, 1],
        first_batch=first,
        noise_scale=noise,
    )


def _noise(folder: Path) -> tuple[float, float]:
    """Return the smallest batch size of the training runs, and its gradient noise scale in mid
    training.
    """
    files = {int(file.stem.rpartition("-")[2]): file for file in folder.glob("validation-*.csv")}
    first = min(files)
    with files[first].open() as lines:
        found = [(float(r["grad_sqr"]), float(r["grad_var"])) for r in csv.DictReader(lines)]
    square, variance = found[len(found) // 2]
    return float(first), first * variance / square


def _where(row: dict[str, str]) -> tuple[int, int]:
    if "num_nodes" in row:
        return int(row["num_nodes"]), int(row["num_replicas"])
    return len(row["placement"]), sum(map(int, row["placement"]))


def trajectory(task: Task, length: int, random: np.random.Generator) -> list[int]:
    """Return the rows of ``task`` in the order in which a job has them, each once.

    The walk begins with one replica (70 %) or two. It then doubles (45 %), adds one replica,
    halves, stays, or jumps. Replicas are packed on the fewest nodes that were measured (70 %), or
    spread over as many nodes as possible; the local batch size moves by one step of the grid. It
    begins in the grid's upper half, because nobody chooses a batch that does not fill the device.
    (The walk is that of models.md section 2.1, which does not say where the batch size begins.)
    """
    table: dict[int, dict[int, dict[float, int]]] = defaultdict(lambda: defaultdict(dict))
    for index, (nodes, replicas, batch, _) in enumerate(task.X):
        table[int(replicas)][int(nodes)][float(batch)] = index
    sizes = sorted(table)
    batches = sorted({float(batch) for batch in task.X[:, 2]})
    size = _nearest(sizes, 1 if random.random() < 0.7 else 2)
    place = int(random.integers(len(batches) // 2, len(batches)))
    visited: list[int] = []
    for _ in range(400):
        nodes = sorted(table[size])
        chosen = nodes[0] if random.random() < 0.7 else nodes[-1]
        row = table[size][chosen]
        batch = min(row, key=lambda found: abs(math.log(found / batches[place])))
        if row[batch] not in visited:
            visited.append(row[batch])
        if len(visited) == length:
            break
        size = _nearest(sizes, _move(size, sizes, random))
        place = int(np.clip(place + random.integers(-1, 2), 0, len(batches) - 1))
    return visited


def _move(size: int, sizes: Sequence[int], random: np.random.Generator) -> float:
    draw = random.random()
    steps = ((0.45, size * 2), (0.65, size + 1), (0.8, size / 2), (0.95, size))
    for below, wanted in steps:
        if draw < below:
            return wanted
    return float(random.choice(np.array(sizes)))


def _nearest(sizes: Sequence[int], wanted: float) -> int:
    return min(sizes, key=lambda size: abs(math.log(size / max(wanted, 1))))
