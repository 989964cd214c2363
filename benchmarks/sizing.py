"""Measures how much the rule for one job loses on the published tables, compared with the best
size.

    python -m benchmarks.sizing

Every task of ``benchmarks.doublings`` (an application on a kind of node) is a job. It begins with
one replica, decides every five minutes, pays one minute for a restart, has 3 % noise, and keeps its
global or its local batch size. Regret is ``ln throughput - 0.5 ln replicas`` of the best size minus
that of the job's size, averaged over the run; ``final`` is the regret of the last size. Growths
that bring less than 10 % are rolled back, as in the loop. The rule has no clauses ``floor`` and
``likely``; the table shows the effect of adding them.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np

from benchmarks.doublings import Table, tables, traces
from brain.models.fitting import Point
from brain.models.job_fit import fit
from brain.models.terms import SpeedTerms
from brain.optimizer.narrowing import not_back, not_in_vain
from brain.optimizer.policies import Efficient, Narrowed, WorthARestart
from brain.optimizer.situation import Choice, Policy, Situation, chance
from brain.optimizer.worth import EXPONENT, credit
from brain.settings import Settings
from brain.types.allocation import Bounds
from brain.types.job import Job, JobDocument, JobId, JobState, PolicyMode
from brain.types.resources import PoolName

SIZES = (1, 2, 4, 8, 16, 32, 64)
EVERY_SECONDS, RESTART_SECONDS, VERIFIED_SECONDS = 300.0, 60.0, 120.0
DWELL_SECONDS, LATELY_SECONDS = 600.0, 3600.0
NOISE = 0.03
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
DOCUMENT = JobDocument(name="job", command=("train",), replicas=Bounds(min=1, max=64))
JOB = Job(
    id=JobId("job"),
    document=DOCUMENT,
    pool=PoolName("pool"),
    owner="nobody",
    state=JobState.RUNNING,
    created_at=BEGAN,
    updated_at=BEGAN,
)


@dataclass(frozen=True, slots=True)
class Without:
    """A policy that may not choose sizes to which its clause objects."""

    base: Policy
    objection: Callable[[Situation, int], str | None]

    def choose(self, situation: Situation) -> Choice:
        return self.base.choose(situation.without_each(self.objection))


def floor(situation: Situation, size: int) -> str | None:
    """Require that each added replica brings half the throughput of a single replica."""
    added = size - situation.replicas
    hoped = situation.useful(size) * math.exp(credit(situation, size))
    wasted = hoped - situation.rate < 0.5 * added * situation.useful(1)
    return "floor" if added > 0 and wasted else None


def likely(situation: Situation, size: int) -> str | None:
    """Require that nine tenths of the throughput are more likely kept than not."""
    smaller = size < situation.replicas
    return (
        "likely"
        if smaller and chance(situation.predict(size), 0.9 * situation.rate) < 0.5
        else None
    )


RULES: Mapping[str, Policy] = {
    "the rule": WorthARestart(Narrowed(Efficient(), by=(not_in_vain, not_back))),
    "with way back": WorthARestart(Narrowed(Efficient(), by=(not_in_vain,))),
    "and likely": WorthARestart(Narrowed(Without(Efficient(), likely), by=(not_in_vain, not_back))),
    "and floor": WorthARestart(Narrowed(Without(Efficient(), floor), by=(not_in_vain, not_back))),
}


@dataclass(frozen=True, slots=True)
class Script:
    """A script on a kind of node, with the step time at each size, on as few nodes as possible."""

    seconds: Mapping[int, float]
    nodes: Mapping[int, int]
    #: Examples a step at each size.
    batch: Mapping[int, float]

    def rate(self, size: int) -> float:
        return self.batch[size] / self.seconds[size]

    def utility(self, size: int) -> float:
        return math.log(self.rate(size)) - EXPONENT * math.log(size)


def scripts(found: Iterable[Table], batching: str) -> list[Script]:
    """Return every task that was measured at three sizes or more."""
    made = []
    for table in found:
        alone = table.get((1, 1))
        if not alone:
            continue
        middle = math.sqrt(min(alone) * max(alone))
        first = max(alone) if batching == "global" else min(b for b in alone if b >= middle)
        widest = max(size for nodes, size in table if nodes == 1)
        nodes = {size: max(1, size // widest) for size in SIZES}
        share = {size: first / size if batching == "global" else float(first) for size in SIZES}
        seconds = {
            size: _seconds(table.get((nodes[size], size), {}), share[size]) for size in SIZES
        }
        known = {size: value for size, value in seconds.items() if value is not None}
        if len(known) >= 3 and 1 in known:
            made.append(Script(known, nodes, {size: share[size] * size for size in SIZES}))
    return made


def lived(script: Script, policy: Policy, hours: float, random: np.random.Generator) -> list[float]:
    """Return the mean regret, the regret of the last size, and the number of changes."""
    total, now, size, lost, changes = 3600 * hours, 0.0, 1, 0.0, 0
    best = max(script.utility(one) for one in script.seconds)
    points: dict[int, Point] = {}
    left: dict[int, float] = {}
    failed: set[int] = set()
    changed = -total
    while now < total:
        now, lost = now + EVERY_SECONDS, lost + (best - script.utility(size)) * EVERY_SECONDS
        points[size] = _point(
            script, size, now, script.seconds[size] * math.exp(random.normal(0, NOISE))
        )
        if now - changed < DWELL_SECONDS:
            continue
        seen = _situation(script, points, size, now, total - now)
        lately = frozenset(one for one, at in left.items() if now - at < LATELY_SECONDS)
        seen = replace(seen, disappointed=frozenset(failed), left_lately=lately)
        target = policy.choose(seen).replicas
        if target == size:
            continue
        changes, changed, left[size] = changes + 1, now, now
        lost += RESTART_SECONDS
        if target > size and script.rate(target) < 1.1 * script.rate(size):
            failed.add(target)
            points[target] = _point(script, target, now, script.seconds[target])
            lost += (best - script.utility(target)) * VERIFIED_SECONDS + RESTART_SECONDS
            now, changes = now + VERIFIED_SECONDS, changes + 1
        else:
            size = target
    return [100 * lost / total, 100 * (best - script.utility(size)), changes]


def _situation(
    script: Script, points: Mapping[int, Point], size: int, now: float, rest: float
) -> Situation:
    present = points[size]
    kept = len(set(script.batch.values())) == 1
    terms = SpeedTerms(global_batch=script.batch[1] if kept else None)
    earlier = [point for point in points.values() if point is not present]
    return Situation(
        job=JOB,
        current=DOCUMENT.sized(size),
        mode=PolicyMode.AUTO,
        present=present,
        model=fit(present, earlier, terms=terms),
        sizes=tuple(script.seconds),
        room=max(SIZES),
        telemetry_age_seconds=1.0,
        stale_after_seconds=60.0,
        world_age_seconds=EVERY_SECONDS,
        checkpointed=True,
        unsaved_seconds=1.0,
        restart_seconds=RESTART_SECONDS,
        elapsed_seconds=now,
        remaining_seconds=rest,
        end_known=True,
        settings=Settings(),
        now=present.until,
    )


def _point(script: Script, size: int, now: float, seconds: float) -> Point:
    return Point(
        epoch=size,
        replicas=size,
        processes=size,
        nodes=script.nodes[size],
        accelerator="accelerator",
        examples_per_step=script.batch[size],
        step_seconds=seconds,
        relative_error=0.02,
        steps=200,
        last_step=200,
        until=BEGAN + timedelta(seconds=now),
    )


def _seconds(row: Mapping[int, float], batch: float) -> float | None:
    """Return the step seconds at ``batch``, interpolated in logarithms, never extrapolated."""
    if not row or not min(row) <= batch <= max(row):
        return None
    batches = sorted(row)
    logs = np.log([row[one] for one in batches])
    return math.exp(float(np.interp(math.log(batch), np.log(batches), logs)))


def main() -> None:
    found = list(tables(traces()).values())
    print("| rule | batch kept | hours | mean | p90 | final | changes |")
    print("|---|---|---|---|---|---|---|")
    for name, policy in RULES.items():
        for batching in ("global", "local"):
            for hours in (2.0, 6.0):
                random = np.random.default_rng(1)
                rows = np.array(
                    [lived(one, policy, hours, random) for one in scripts(found, batching)]
                )
                mean, final, changes = rows.mean(axis=0)
                high = np.quantile(rows[:, 0], 0.9)
                print(
                    f"| {name} | {batching} | {hours:g} | {mean:.1f} % | {high:.1f} % | "
                    f"{final:.1f} % | {changes:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
