"""Measures which model predicts step times best from a few points.

    make bench-models

A task is an application on a kind of node that Pollux or Sia measured. Rows of Pollux's tables come
first, without bars, because six tables are too few for bars. Rows of all tables follow if Sia's are
present. A job walks through its configurations; after k of them each model predicts all other
configurations of the table (``data``). Our model is compared with the fits of Pollux and Optimus
(``peers``). Pollux's published fit takes the compute time of each step in addition to the step
time, so our model gets it as well, in order that the telemetry is equal. Both are also shown
without compute times. Our model uses the constants that ship, and learns from no other job.

Errors are means, over tasks and walks, of the mean absolute percentage error over a table. The
shares inside bands are counted over the same predictions. Regret is the goodput of the best
configuration minus that of the chosen one, as a share; the statistical efficiency in the middle of
training is assumed to be known.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.models import transfer, trials
from benchmarks.models.data import Task, tasks, trajectory
from benchmarks.models.peers import Optimus, Pollux
from benchmarks.published import sia_tables, skipped
from benchmarks.report import Row, publish
from brain.models.step_time.ensemble import StepTime
from brain.typeset import count

Floats = NDArray[np.float64]
POINTS = (1, 2, 3, 5, 8, 12)
SEEDS = 6
#: Error allowed, as a share of the error of Pollux's fit in the same run.
BARS = {3: 0.50, 5: 0.62, 12: 0.70}
#: Half of a 90 % band in standard deviations.
_Z90 = 1.6449
#: Milliseconds that a fit with 60 predictions may take.
_FIT_MS = 5.0

#: Rows seen, their log step and log compute seconds, rows asked: log seconds and deviation.
Model = Callable[[Floats, Floats, Floats, Floats], tuple[Floats, Floats | None]]


@dataclass(slots=True)
class Score:
    """The results of one model after one number of points; each field has a value per walk."""

    error: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)
    regret: list[float] = field(default_factory=list)
    sizing: list[float] = field(default_factory=list)


#: Of a model at a number of points.
Scores = Mapping[tuple[str, int], Score]


def ours(*, split: bool) -> Model:
    """Return Brain's ensemble; with ``split`` it also gets the compute times."""

    def model(X: Floats, y: Floats, compute: Floats, asked: Floats) -> tuple[Floats, Floats]:
        fitted = StepTime().fit(X, y, None, compute if split else None)
        mean, spread = fitted.predict(asked, return_std=True)
        return mean, spread

    return model


def peer(kind: type[Pollux] | type[Optimus], *, split: bool) -> Model:
    """Return a peer's fit, which gives no uncertainty."""

    def model(X: Floats, y: Floats, compute: Floats, asked: Floats) -> tuple[Floats, None]:
        fitted = kind()
        fitted.fit(X, np.exp(y), np.exp(compute) if split else None)
        return np.log(fitted.predict(asked)), None

    return model


def bake_off(found: Sequence[Task], models: Mapping[str, Model], seeds: int) -> Scores:
    """Score every model after every number of points."""
    scores: dict[tuple[str, int], Score] = defaultdict(Score)
    for number, task in enumerate(found):
        for seed in range(seeds):
            walk = trajectory(task, max(POINTS), np.random.default_rng([seed, number]))
            for points in (points for points in POINTS if points <= len(walk)):
                for name, model in models.items():
                    judge(scores[name, points], task, walk[:points], model)
    return scores


def judge(score: Score, task: Task, seen: Sequence[int], model: Model) -> None:
    """Add the results of ``model`` on a table, after the rows ``seen``."""
    y, compute = np.log(task.step_seconds), np.log(task.compute_seconds)
    rows = list(seen)
    mean, spread = model(task.X[rows], y[rows], compute[rows], task.X)
    rest = np.setdiff1d(np.arange(len(y)), rows)
    miss = (mean - y)[rest]
    score.error.append(float(np.abs(np.expm1(miss)).mean()))
    if spread is not None:
        score.inside.append(float((np.abs(miss) <= _Z90 * spread[rest]).mean()))
    believed = mean.copy()
    believed[rows] = y[rows]
    score.regret.append(regret(task, believed))
    score.sizing.append(sizing(task, believed))


def regret(task: Task, believed: Floats) -> float:
    """Return the share of goodput that is lost by choosing the configuration believed to be best,
    over budgets of GPUs.
    """
    lost = []
    truth, guess = task.goodput(np.log(task.step_seconds)), task.goodput(believed)
    for budget in (2, 4, 8, 16, 32, 64):
        allowed = np.flatnonzero(task.X[:, 1] <= budget)
        if budget <= task.X[:, 1].max() and len(allowed):
            chosen = allowed[np.argmax(guess[allowed])]
            lost.append(1 - truth[chosen] / truth[allowed].max())
    return float(np.mean(lost))


def sizing(task: Task, believed: Floats) -> float:
    """Return the regret of goodput per square root of GPUs, without a budget."""
    price = np.sqrt(task.X[:, 1])
    truth = task.goodput(np.log(task.step_seconds)) / price
    guess = task.goodput(believed) / price
    return float(1 - truth[np.argmax(guess)] / truth.max())


def fit_milliseconds(found: Sequence[Task]) -> float:
    """Return the median CPU milliseconds, over tasks, of one fit to twelve points with 60
    predictions.
    """
    taken = []
    for task in found:
        rows = trajectory(task, max(POINTS), np.random.default_rng(0))
        y, compute = np.log(task.step_seconds[rows]), np.log(task.compute_seconds[rows])
        asked = task.X[np.arange(60) % len(task.X)]
        for _ in range(3):
            start = time.process_time()
            ours(split=True)(task.X[rows], y, compute, asked)
            taken.append(1e3 * (time.process_time() - start))
    return float(np.median(taken))


def contenders() -> Mapping[str, Model]:
    """Return all models that are compared."""
    return {
        "Brain": ours(split=True),
        "Brain without compute times": ours(split=False),
        "Pollux's fit": peer(Pollux, split=True),
        "Pollux's fit without compute times": peer(Pollux, split=False),
        "Optimus's fit": peer(Optimus, split=False),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="walks per task")
    arguments = parser.parse_args()
    pollux, sia = tasks(None), sia_tables()
    table = [
        replace(row, metric=f"Pollux's tables: {row.metric}", bar=None, ratio_bar=None)
        for row in predictions(pollux, arguments.seeds)
    ]
    if sia:
        every = tasks(sia)
        table += [*predictions(every, arguments.seeds), *transfer.rows(every)]
    else:
        table.append(skipped("the same of all tables, and a curve on a new accelerator"))
    spent = fit_milliseconds(pollux)
    table.append(Row(metric="a fit and 60 predictions, CPU", value=spent, unit="ms", bar=_FIT_MS))
    publish("models", "Step time from a handful of points", table)


def predictions(found: Sequence[Task], seeds: int) -> list[Row]:
    """Return rows about the predictions for the tables of ``found``."""
    scores = bake_off(found, contenders(), seeds)
    table = [*errors(scores), *usual(scores), *coverage(scores), *regrets(scores)]
    return table + trials.rows(found)


def errors(scores: Scores) -> list[Row]:
    """Return the mean absolute percentage errors of our model and of a peer's, with equal
    telemetry.
    """
    pairs = (
        ("Brain", "Pollux's fit"),
        ("Brain without compute times", "Pollux's fit without compute times"),
        ("Brain without compute times", "Optimus's fit"),
    )
    table = []
    for mine, other in pairs:
        for points in POINTS:
            value, theirs = (100 * float(np.mean(scores[n, points].error)) for n in (mine, other))
            share = BARS.get(points) if mine == "Brain" else None
            table.append(
                Row(
                    metric=f"{mine}: error from {count(points, 'point')}",
                    value=value,
                    unit="%",
                    peer=other,
                    peer_value=theirs,
                    ratio_bar=round(1 / share, 3) if share else None,
                )
            )
    return table


def usual(scores: Scores) -> list[Row]:
    """Return the errors of the median walk, because means also contain a peer's worst
    extrapolations.
    """
    table = []
    for points in BARS:
        value, theirs = (
            100 * float(np.median(scores[n, points].error)) for n in ("Brain", "Pollux's fit")
        )
        table.append(
            Row(
                metric=f"error of the median walk from {count(points, 'point')}",
                value=value,
                unit="%",
                peer="Pollux's fit",
                peer_value=theirs,
            )
        )
    return table


def coverage(scores: Scores) -> list[Row]:
    """Return how far the share of true values in 90 % bands is from 87 … 95 %."""
    table = []
    for points in POINTS:
        inside = 100 * float(np.mean(scores["Brain", points].inside))
        table.append(
            Row(
                metric=f"90 % bands from {count(points, 'point')}, tuning set: away from 87 … 95 %",
                value=max(0.0, 87 - inside, inside - 95),
                unit="points",
                bar=0.0,
                note=f"they hold {inside:.1f} %",
            )
        )
    return table


def regrets(scores: Scores) -> list[Row]:
    """Return rows about the loss of the model's choices compared with the best choices."""
    table = []
    for name, what in (
        ("regret", "within a budget of GPUs"),
        ("sizing", "per square root of GPUs"),
    ):
        for points in (1, 3, 5, 12):
            value, theirs = (
                100 * float(np.mean(getattr(scores[n, points], name)))
                for n in ("Brain", "Pollux's fit")
            )
            table.append(
                Row(
                    metric=f"goodput {what} lost after {count(points, 'point')}",
                    value=value,
                    unit="%",
                    peer="Pollux's fit",
                    peer_value=theirs,
                )
            )
    return table


if __name__ == "__main__":
    main()
