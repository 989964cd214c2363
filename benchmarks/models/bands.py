"""``make bench-bands``: measures how often 90 % bands contain a known truth.

    make bench-bands

There are eleven kinds of truth (``truths``). Each model predicts after 1, 2, 3 and 6 sizes, for
three seeds. Constants were chosen on the first two seeds. The third seed is the first eight
hexadecimal digits of the last commit that changed ``brain/models``, so that nobody could use it to
choose constants. Commit 65270bc, the last without the input term, predicts the same in the same
run; its files are read from git. A score is the width of a band in logarithms, plus twenty times
the distance of the truth from the band (Gneiting and Raftery, 2007).
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.base import BASE, ROOT, checkout, git
from benchmarks.models.truths import KINDS, POINTS, Problem, problems
from benchmarks.report import Row, publish
from brain.typeset import count

#: Constants were chosen on these: a tuning set.
TUNING = (1, 2)
EACH = 20
#: Shares of truths that bands may hold: of one kind and number of points, and of all.
_CELL, _ALL = (85.0, 97.0), (87.0, 95.0)
#: A band misses one truth in ten: what lies outside counts by 2 / 0.1.
_MISS = 20.0


class Judged(NamedTuple):
    """One prediction and the true value."""

    kind: str
    points: int
    seed: int
    inside: bool
    score: float


def main() -> None:
    """Measure and print the rows; exit with 1 if a bar is not met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--each", type=int, default=EACH, help="truths of each kind and seed")
    parser.add_argument("--seeds", type=int, nargs="*", help="instead of the three; unpublished")
    given = parser.parse_args()
    seeds = given.seeds or [*TUNING, newest()]
    asked = {seed: problems(seed, given.each) for seed in seeds}
    ours = judged(asked, ROOT)
    with tempfile.TemporaryDirectory(prefix="brain-bench-base-") as place:
        theirs = judged(asked, checkout(Path(place), "brain"))
    publish("bands", "Bands on jobs whose truth is known", rows(ours, theirs))


def newest() -> int:
    """Return the first eight digits of the last commit that changed the models, as a number."""
    return int(git("log", "-1", "--format=%H", "--", "brain/models").decode()[:8], 16)


def judged(asked: Mapping[int, Sequence[Problem]], of: Path) -> list[Judged]:
    """Return every prediction of a checkout's model."""
    return [
        one
        for seed, found in asked.items()
        for problem, bands in zip(found, believed(found, of), strict=True)
        for one in held(problem, bands, seed)
    ]


def believed(found: Sequence[Problem], of: Path) -> list[Mapping[str, Any]]:
    """Let a checkout's model predict in a process of its own."""
    known = [{k: v for k, v in asdict(one).items() if k != "truths"} for one in found]
    program = [sys.executable, "-P", str(Path(__file__).with_name("believe.py"))]
    environment = {**os.environ, "PYTHONPATH": str(of)}
    told = subprocess.run(
        program,
        input=json.dumps(known).encode(),
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    answers: list[Mapping[str, Any]] = json.loads(told.stdout)
    return answers


def held(problem: Problem, bands: Mapping[str, Any], seed: int) -> Iterator[Judged]:
    """Return each prediction for one problem with the true value; a refusal is no prediction."""
    for points, truths in problem.truths.items():
        for truth, band in zip(truths, bands[str(points)], strict=True):
            if band is not None:
                _, low, high = band
                missed = max(0.0, math.log(low / truth), math.log(truth / high))
                score = math.log(high / low) + _MISS * missed
                yield Judged(problem.kind, points, seed, missed == 0.0, score)


def rows(ours: Sequence[Judged], theirs: Sequence[Judged]) -> list[Row]:
    """Return the shares by kind and number of points over all seeds, and the shares and scores by
    seed.
    """
    table = []
    for kind in KINDS:
        for points in POINTS:
            mine, base = (
                [one for one in of if (one.kind, one.points) == (kind, points)]
                for of in (ours, theirs)
            )
            table.append(_share(f"{kind}, {count(points, 'size')} measured", mine, base, _CELL))
    for seed in dict.fromkeys(one.seed for one in ours):
        mine, base = ([one for one in of if one.seed == seed] for of in (ours, theirs))
        name = f"seed {seed}, tuning set" if seed in TUNING else f"seed {seed}, of the last commit"
        table += [_share(f"all, {name}", mine, base, _ALL), _score(name, mine, base)]
    return table


def _share(
    what: str, ours: Sequence[Judged], theirs: Sequence[Judged], allowed: tuple[float, float]
) -> Row:
    low, high = allowed
    inside, before = (100 * float(np.mean([one.inside for one in of])) for of in (ours, theirs))
    score, was = (float(np.mean([one.score for one in of])) for of in (ours, theirs))
    by_seed: dict[int, list[bool]] = defaultdict(list)
    for one in ours:
        by_seed[one.seed].append(one.inside)
    each = ", ".join(f"{100 * float(np.mean(found)):.0f}" for found in by_seed.values())
    return Row(
        metric=f"{what}: 90 % bands away from {low:g} … {high:g} %",
        value=max(0.0, low - inside, inside - high),
        unit="points",
        bar=0.0,
        note=f"they hold {inside:.1f} % of {len(ours)} (by seed {each}), {BASE}'s {before:.1f} %; "
        f"score {score:.2f} beside {was:.2f}",
    )


def _score(name: str, ours: Sequence[Judged], theirs: Sequence[Judged]) -> Row:
    return Row(
        metric=f"all, {name}: interval score",
        value=float(np.mean([one.score for one in ours])),
        unit="",
        peer=BASE,
        peer_value=float(np.mean([one.score for one in theirs])),
        ratio_bar=1.0,
    )


if __name__ == "__main__":
    main()
