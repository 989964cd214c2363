"""Compares job completion times under Brain, Pollux, Sia, Tiresias and Optimus, in simulators.

    make bench-jct

    make bench-jct FULL=1

Both simulators are re-implemented from their description (``pollux``, ``sia``). Brain is its
service on in-memory stores, which is told the events and asked for a division once a round
(``driven``). Brain may learn only within a run: the name of an application serves as the name of a
script, and Brain looks nothing else up. A full run takes hours, and covers every workload of
``benchmarks/data`` for which the peers' results are present. Rows that compare with Sia need
``$BRAIN_BENCH_DATA`` (``benchmarks/data/README.md``). Outcomes are stored in ``build/jct``, so that
the same code simulates the same data only once.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from benchmarks.jct import rows
from benchmarks.jct.bench import ROOT, SEEDS, Bench
from benchmarks.jct.sia import rows as sia
from benchmarks.jct.variants import Variant
from benchmarks.report import Row, markdown, publish

#: In the order of the report; each may be run alone.
PARTS: dict[str, Callable[[Bench], list[Row]]] = {
    "faithfulness": rows.faithfulness,
    "service": rows.service,
    "peers": rows.peers,
    "sia": sia.rows,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--full", action="store_true", help="every workload that is at hand")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="parts to run; not published")
    parser.add_argument("--workloads", nargs="+", type=int, help="workloads to run; not published")
    parser.add_argument("--simulator", type=Path, help="Pollux's own, to run ours in; original")
    parser.add_argument(
        "--sia-simulator", type=Path, help="Sia's own, to run Brain in; sia/adapter"
    )
    parser.add_argument(
        "--variant",
        type=int,
        metavar="SEED",
        help="other names, lengths, speeds and models; not published",
    )
    arguments = parser.parse_args()
    other = arguments.simulator or arguments.sia_simulator
    bench = Bench(
        workloads=arguments.workloads,
        full=arguments.full,
        tell=_tell,
        variant=None if arguments.variant is None else Variant(arguments.variant),
        kept=None if other else ROOT / "build/jct",
    )
    if arguments.simulator:
        sys.stdout.write(markdown(rows.original(bench, arguments.simulator)) + "\n")
        return
    if arguments.sia_simulator:
        sys.stdout.write(markdown(sia.original(bench, arguments.sia_simulator)) + "\n")
        return
    parts = arguments.only or list(PARTS)
    _play(bench, parts)
    bench = replace(bench, tell=lambda line: None)
    table = [row for part in parts for row in PARTS[part](bench)]
    if arguments.only or arguments.workloads or bench.variant:
        sys.stdout.write(markdown(table) + "\n")
        sys.exit(0 if all(row.met for row in table) else 1)
    command = "make bench-jct" + (" FULL=1" if bench.full else "")
    publish("jct", "Job completion times in simulation", table, command=command)


def _play(bench: Bench, parts: Sequence[str]) -> None:
    """Run the simulations whose results are not stored yet, two workloads at a time."""
    tasks = [(part, number) for number in (*range(1, 10), *SEEDS) for part in parts]
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
        for ended in [pool.submit(_one, bench, *task) for task in tasks]:
            ended.result()


def _one(bench: Bench, part: str, number: int) -> None:
    PARTS[part](replace(bench, alone=number))


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
