"""Compares three chosen points with points in the order of a walk, and measures the effect of
points that stragglers distorted.
"""

from collections.abc import Sequence

import numpy as np

from benchmarks.models.data import Task, trajectory
from benchmarks.models.peers import Pollux
from benchmarks.report import Row
from brain.models.step_time.columns import Floats
from brain.models.step_time.ensemble import StepTime

#: Measurement noise, share of spoiled measurements, and by how much those are slower.
NOISE, SPOILED, SLOWER = 0.05, 0.1, 1.5


def rows(found: Sequence[Task], seeds: int = 6) -> list[Row]:
    """Return the rows of the table."""
    return [_designed(found, seeds), *_spoiled(found, seeds)]


def _designed(found: Sequence[Task], seeds: int) -> Row:
    chosen, walked = [], []
    for task in found:
        looks = design(task)
        if len(looks) == 3:
            chosen.append(_error(task, looks, np.log(task.step_seconds)))
            for seed in range(seeds):
                walk = trajectory(task, 3, np.random.default_rng(seed))
                walked.append(_error(task, walk, np.log(task.step_seconds)))
    return Row(
        metric="error from 3 chosen points",
        value=100 * float(np.mean(chosen)),
        unit="%",
        peer="3 points of a walk",
        peer_value=100 * float(np.mean(walked)),
        note="one replica; a full node, larger batch; two nodes, smaller batch",
    )


def design(task: Task) -> list[int]:
    """Return rows of one replica, of a full node at a larger local batch size, and of two nodes at
    a smaller one.
    """
    nodes, replicas, batch, _ = task.X.T
    batches = sorted(set(batch))
    middle = len(batches) // 2
    widest = replicas[nodes == 1].max()
    wanted = (
        (1, 1, batches[middle]),
        (1, widest, batches[min(middle + 2, len(batches) - 1)]),
        (2, 2 * widest, batches[max(middle - 2, 0)]),
    )
    looks = []
    for many, size, local in wanted:
        here = np.flatnonzero((nodes == many) & (replicas <= size))
        if len(here):
            far = 10 * np.abs(np.log(replicas[here] / size)) + np.abs(np.log(batch[here] / local))
            looks.append(int(here[far.argmin()]))
    return looks if len(set(looks)) == len(wanted) else []


def _spoiled(found: Sequence[Task], seeds: int) -> list[Row]:
    table = []
    for points in (5, 12):
        ours, theirs = [], []
        for task in found:
            for seed in range(seeds):
                random = np.random.default_rng([seed, points])
                walk = trajectory(task, points, random)
                noise = random.normal(0, NOISE, len(task.X))
                noise += np.log(SLOWER) * (random.random(len(task.X)) < SPOILED)
                seen = np.log(task.step_seconds) + noise
                ours.append(_error(task, walk, seen))
                theirs.append(_error(task, walk, seen, peer=True))
        table.append(
            Row(
                metric=f"error from {points} points, a tenth of them spoiled by stragglers",
                value=100 * float(np.mean(ours)),
                unit="%",
                peer="Pollux's fit",
                peer_value=100 * float(np.mean(theirs)),
            )
        )
    return table


def _error(task: Task, looks: Sequence[int], seen: Floats, *, peer: bool = False) -> float:
    at = list(looks)
    compute = np.log(task.compute_seconds[at])
    rest = np.setdiff1d(np.arange(len(task.X)), at)
    if peer:
        fitted = Pollux()
        fitted.fit(task.X[at], np.exp(seen[at]), np.exp(compute))
        predicted = np.log(fitted.predict(task.X[rest]))
    else:
        predicted = StepTime().fit(task.X[at], seen[at], None, compute).predict(task.X[rest])
    return float(np.abs(np.expm1(predicted - np.log(task.step_seconds[rest]))).mean())
