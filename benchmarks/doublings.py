"""Measures how much throughput a doubling of replicas gains in the published tables.

``PRIORS`` are estimated from these gains.

    python -m benchmarks.doublings [--write tests/models/doublings.csv]

It reads the step times that were measured for Pollux (OSDI'21) and, if ``$BRAIN_BENCH_DATA`` has
them, those for Sia (SOSP'23), which include Pollux's. It prints the mean and the deviation of two
log gains: from one replica to two on one node, and of the next doubling relative to the first. Then
it prints how many doublings of a left-out application fall into the bands, and how many doublings
over two nodes do. A task is an application on a kind of node; all tasks have the same weight. Only
batch sizes in the upper half (geometrically) of those measured at a placement count, because nobody
chooses a batch that does not fill the device. ``--write`` stores the pairs of Pollux (Apache-2.0)
for the calibration test.
"""

import argparse
import csv
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.published import NO_SIA, SHIPPED, sia_tables
from brain.models.fitting import REPEAT, Z90

#: Nodes, replicas -> local batch -> step seconds, of one task.
Table = dict[tuple[int, int], dict[int, float]]
#: Visibly synthetic: its times are exact multiples of each other.
SYNTHETIC = "gpt_pmp"


@dataclass(frozen=True, slots=True)
class Doubling:
    """Two successive doublings from one replica, with their gains in log throughput."""

    task: str
    nodes: int
    batching: str
    local_batch: int
    gain: float
    #: None where four replicas were not measured.
    next_gain: float | None


def traces() -> Path:
    """Return Sia's tables, which include Pollux's; if they are missing, return Pollux's alone and
    print a note.
    """
    sia = sia_tables()
    if sia is None:
        print(f"all but Pollux's tables {NO_SIA}", file=sys.stderr)
    return (sia or SHIPPED / "pollux") / "traces"


def tables(traces: Path) -> Mapping[str, Table]:
    """Return the mean step seconds of every task under ``traces``, without uneven placements."""
    times: dict[str, dict[tuple[int, int], dict[int, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for file in sorted(traces.glob("*/*.csv")):
        kind, _, gpu = file.stem.partition("-")
        if kind not in ("placements", "scalability") or file.parent.name == SYNTHETIC:
            continue
        if not gpu and (file.parent / f"{kind}-aws.csv").exists():
            continue  # The same table under its old name.
        for row in csv.DictReader(file.open()):
            where = _where(row)
            if where:
                local_batch = round(float(row["local_bsz"]))
                task = f"{file.parent.name} on {gpu or 'aws'}"
                times[task][where][local_batch].append(float(row["step_time"]))
    return {
        task: {
            where: {batch: sum(found) / len(found) for batch, found in row.items()}
            for where, row in table.items()
        }
        for task, table in times.items()
    }


def doublings(task: str, table: Table) -> Iterator[Doubling]:
    """Return all pairs of measurements in ``table`` from one replica to two, on one node or on two,
    each with the next doubling.
    """
    alone = table.get((1, 1), {})
    if not alone:
        return
    middle = math.sqrt(min(alone) * max(alone))
    for batch in (batch for batch in alone if batch >= middle):
        for batching, share in (("global", 2), ("local", 1)):
            for nodes in (1, 2):
                gain = _gain(table, (1, 1), batch, (nodes, 2), batch / share, share)
                if gain is None:
                    continue
                then = _gain(table, (nodes, 2), batch / share, (nodes, 4), batch / share**2, share)
                yield Doubling(task, nodes, batching, batch, gain, then)


def summary(found: Iterable[float | None], tasks: Iterable[str]) -> tuple[float, float, int]:
    """Return mean, standard deviation and number of tasks; each task has the same weight."""
    pairs = [(value, task) for value, task in zip(found, tasks, strict=True) if value is not None]
    sizes = Counter(task for _, task in pairs)
    values = np.array([value for value, _ in pairs])
    weights = np.array([1 / sizes[task] for _, task in pairs])
    mean = float(np.average(values, weights=weights))
    deviation = math.sqrt(float(np.average((values - mean) ** 2, weights=weights)))
    return mean, deviation, len(sizes)


def across_nodes(found: list[Doubling], gain: float, deviation: float) -> float:
    """Return the share of doublings over two nodes that fall into the band of a prior from one
    node.
    """
    band = Z90 * math.hypot(deviation, REPEAT)
    return _share([(float(abs(d.gain - gain) <= band), d.task) for d in found if d.nodes == 2])


def held_out_coverage(found: list[Doubling]) -> tuple[float, float]:
    """Return the shares of first and of second doublings that fall into the model's 90 % bands.

    The prior is estimated without the application in question; tasks have equal weights.
    """
    first: list[tuple[float, str]] = []
    second: list[tuple[float, str]] = []
    for application in sorted({d.task.split()[0] for d in found}):
        others = [d for d in found if d.task.split()[0] != application]
        tasks = [d.task for d in others]
        gain, gain_deviation, _ = summary([d.gain for d in others], tasks)
        bends = [None if d.next_gain is None else d.next_gain - d.gain for d in others]
        bend, bend_deviation, _ = summary(bends, tasks)
        for d in (d for d in found if d.task.split()[0] == application):
            band = Z90 * math.hypot(gain_deviation, REPEAT)
            first.append((float(abs(d.gain - gain) <= band), d.task))
            if d.next_gain is not None:
                band = Z90 * math.hypot(bend_deviation, REPEAT)
                second.append((float(abs(d.next_gain - d.gain - bend) <= band), d.task))
    return _share(first), _share(second)


def _share(pairs: list[tuple[float, str]]) -> float:
    return summary([inside for inside, _ in pairs], [task for _, task in pairs])[0]


def _where(row: Mapping[str, str]) -> tuple[int, int] | None:
    if "num_nodes" in row:
        return int(row["num_nodes"]), int(row["num_replicas"])
    placement = row["placement"]
    even = len(set(placement)) == 1
    return (len(placement), sum(map(int, placement))) if even else None


def _gain(
    table: Table,
    before: tuple[int, int],
    batch_before: float,
    after: tuple[int, int],
    batch_after: float,
    share: int,
) -> float | None:
    slow = _seconds(table.get(before, {}), batch_before)
    fast = _seconds(table.get(after, {}), batch_after)
    return None if slow is None or fast is None else math.log(2 / share * slow / fast)


def _seconds(row: Mapping[int, float], batch: float) -> float | None:
    """Return the step seconds at ``batch``, interpolated in logarithms, never extrapolated."""
    if not row or not min(row) <= batch <= max(row):
        return None
    batches = sorted(row)
    return math.exp(
        np.interp(math.log(batch), np.log(batches), np.log([row[one] for one in batches]))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--write", type=Path, help="keep the pairs of Pollux in this file")
    arguments = parser.parse_args()
    found = [d for t, table in tables(traces()).items() for d in doublings(t, table)]
    for batching in ("global", "local"):
        kept = [d for d in found if d.batching == batching and d.nodes == 1]
        tasks = [d.task for d in kept]
        gain, deviation, count = summary([d.gain for d in kept], tasks)
        print(f"fixed {batching} batch: gain {gain:+.3f} ± {deviation:.3f} ({count} tasks)")
        bends = [None if d.next_gain is None else d.next_gain - d.gain for d in kept]
        bend, spread, count = summary(bends, tasks)
        print(f"fixed {batching} batch: bend {bend:+.3f} ± {spread:.3f} ({count} tasks)")
        first, second = held_out_coverage(kept)
        print(f"held-out 90 % bands hold {first:.0%} of first and {second:.0%} of second doublings")
        across = across_nodes([d for d in found if d.batching == batching], gain, deviation)
        print(f"they hold {across:.0%} of first doublings over two nodes")
    if arguments.write:
        pollux = tables(SHIPPED / "pollux/traces").items()
        kept = [d for task, table in pollux for d in doublings(task, table) if d.nodes == 1]
        write(arguments.write, kept)


def write(path: Path, found: Iterable[Doubling]) -> None:
    """Write ``found`` as CSV."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["task", "batching", "local_batch", "gain", "next_gain"])
        for d in found:
            then = "" if d.next_gain is None else f"{d.next_gain:.4f}"
            rows.writerow([d.task, d.batching, d.local_batch, f"{d.gain:.4f}", then])


if __name__ == "__main__":
    main()
