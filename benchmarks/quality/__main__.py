"""``make bench-quality``: compares the loss with and without changes of world and batch size.

The compared runs train for the same number of epochs.

    make bench-quality
    make bench-quality ONLY='digits by CNN'

Three trainings use data that need no download: scikit-learn's digits with a perceptron and with a
convolutional network, and the licence of this project with a small language model of characters.
Each runs five times under ``brain-run`` as one process with one batch size. Each also runs five
times with the same seeds while a second agent joins and leaves and the batch size changes: five
changes of both, evenly spread. Processes restart from their checkpoint; the script asks
``launcher.batch`` for its batch size.

The bar is one standard deviation of the undisturbed runs, a difference that another seed may make
as well. No optimizer is involved: the benchmark writes the batch file as an agent does, with
AdaScale's gain for a noise scale of four first batch sizes.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from benchmarks.elastic import launchers
from benchmarks.elastic.job import Job, running
from benchmarks.elastic.launchers import SCRIPTS, environment, free_port, listening
from benchmarks.report import Row, publish
from brain.models.efficiency import gain
from brain.types.batch import BatchWish
from launcher.workers.batch_file import BatchFile

FIRST_BATCH = 32
SEEDS = (1, 2, 3, 4, 5)
#: World and batch after each change; before it one process makes ``FIRST_BATCH``.
CHANGES = ((2, 64), (1, 32), (2, 96), (1, 48), (2, 64))
_NOISE = 4.0 * FIRST_BATCH
EPOCHS = {"digits by MLP": 20, "digits by CNN": 8, "language model": 8}
LICENCE = Path(__file__).parents[2] / "LICENSE"
_WINDOW, _STRIDE = 32, 6
_PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one run."""

    loss: float
    accuracy: float
    steps: int
    #: (replicas, batch) as they followed each other.
    seen: tuple[tuple[int, int], ...]


def main() -> None:
    """Measure and print the rows; exit with 1 if a bar is not met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", choices=list(EPOCHS), help="one task")
    given = parser.parse_args()
    tasks = [given.only] if given.only else list(EPOCHS)
    with tempfile.TemporaryDirectory(prefix="brain-bench-quality-") as place:
        for task in tasks:
            np.savez(Path(place) / f"{task}.npz", **data(task))
        with ThreadPoolExecutor(len(tasks)) as pool:
            found = list(pool.map(partial(runs, Path(place)), tasks))
    publish("quality", "Loss under changes of world and batch", [row(*one) for one in found])


def data(task: str) -> Mapping[str, Any]:
    """Return examples and labels, and the held-out ones: every fifth digit, or the last tenth of
    the text.
    """
    if task == "language model":
        text = LICENCE.read_text()
        letters = {letter: number for number, letter in enumerate(sorted(set(text)))}
        codes = np.array([letters[letter] for letter in text], dtype=np.int64)
        starts = range(0, len(codes) - _WINDOW, _STRIDE)
        windows = np.array([codes[start : start + _WINDOW + 1] for start in starts])
        held = np.arange(len(windows)) * _STRIDE > 0.9 * len(codes)
        x, y = windows[:, :-1], windows[:, 1:]
    else:
        images, labels = load_digits(return_X_y=True)
        x = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
        y, held = labels.astype(np.int64), np.arange(len(labels)) % 5 == 0
    return {"x": x[~held], "y": y[~held], "held_x": x[held], "held_y": y[held]}


def runs(place: Path, task: str) -> tuple[str, Sequence[Result], Sequence[Result]]:
    """Run a task several times undisturbed, and several times with changes; return all results."""
    fixed = [run(place, task, seed, ()) for seed in SEEDS]
    return task, fixed, [run(place, task, seed, CHANGES) for seed in SEEDS]


def run(place: Path, task: str, seed: int, changes: Sequence[tuple[int, int]]) -> Result:
    """Run a task once under ``brain-run``, through every change."""
    name = f"{task}-{seed}-{len(changes)}".replace(" ", "-")
    batch = place / f"{name}.json"
    known = launchers.known(place / f"home-{name}")["brain-run"]
    launcher = replace(
        known,
        environment={**known.environment, "BRAIN_BATCH_FILE": str(batch)},
        script=str(SCRIPTS / "quality.py"),
        arguments=(
            task,
            str(place / f"{task}.npz"),
            *map(str, (seed, EPOCHS[task], len(changes))),
        ),
        nodes="1:2",
    )
    file, port = BatchFile(str(batch)), free_port()
    file.keep(wish(FIRST_BATCH), 1)
    with running(partial(launcher.agent, port), environment(launcher), "quality") as job:
        job.start()
        job.until("somebody to listen", 60, lambda: listening(port))
        for gate, (size, examples) in enumerate(changes, 1):
            at(job, gate, CHANGES[gate - 2][0] if gate > 1 else 1)
            change(job, size)
            at(job, gate, size)
            file.keep(wish(examples), size)
            (job.traces / "gate").write_text(str(gate))
        said = job.until("the end", _PATIENCE_SECONDS, lambda: read(job.traces / "result"))
    found = Result(**said, seen=((1, FIRST_BATCH), *changes))
    print(f"{task}, seed {seed}, {len(changes)} changes: {found}", flush=True)
    return found


def change(job: Job, size: int) -> None:
    """Let a second agent join or leave."""
    if size > 1:
        job.start()
    else:
        job.agents[-1].process.terminate()


def at(job: Job, gate: int, size: int) -> None:
    """Wait for a world of ``size`` at a gate."""

    def look() -> bool:
        said = read(job.traces / "at")
        return said is not None and (said["gate"], said["world"]) == (gate, size)

    job.until(f"a world of {size} at gate {gate}", _PATIENCE_SECONDS, look)


def read(file: Path) -> Any:
    """Return the content of the script's file; None before the script has written it."""
    return json.loads(file.read_text()) if file.exists() else None


def wish(examples: int) -> BatchWish:
    """Return a batch size for the script, with the learning rate that belongs to it."""
    return BatchWish(
        global_size=examples,
        local_most=FIRST_BATCH,
        learning_rate_scale=gain(examples, first_batch=FIRST_BATCH, noise=_NOISE),
    )


def row(task: str, fixed: Sequence[Result], changed: Sequence[Result]) -> Row:
    """Return how far the changed runs' mean loss is above or below that of the undisturbed runs, in
    standard deviations of the undisturbed runs.

    >>> one = Result(loss=1.0, accuracy=0.9, steps=10, seen=((1, 32),))
    >>> other = replace(one, loss=1.2)
    >>> row("t", [one, other], [other, other]).value.__round__(3)
    0.707
    """
    means = [statistics.mean(one.loss for one in of) for of in (fixed, changed)]
    spread = statistics.stdev(one.loss for one in fixed)
    right = [100 * statistics.mean(one.accuracy for one in of) for of in (fixed, changed)]
    steps = [round(statistics.mean(one.steps for one in of)) for of in (fixed, changed)]
    path = " → ".join(f"{size} × {batch // size}" for size, batch in changed[0].seen)
    epochs = EPOCHS.get(task, 0)
    return Row(
        metric=f"{task}: mean loss of {len(changed)} runs with {len(changed[0].seen) - 1} changes, "
        f"away from that of {len(fixed)} without, in their standard deviations",
        value=abs(means[1] - means[0]) / spread,
        unit="σ",
        bar=1.0,
        note=f"loss {means[1]:.4f} beside {means[0]:.4f} ± {spread:.4f} after {epochs} epochs, "
        f"{right[1]:.1f} % right beside {right[0]:.1f}, {steps[1]} steps beside {steps[0]}; "
        f"workers × examples of each: {path}, learning rate by AdaScale's gain (Adam: root)",
    )


if __name__ == "__main__":
    main()
