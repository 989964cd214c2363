"""How long jobs take: Brain beside Pollux, Sia, Tiresias and Optimus in their own simulators.

    make bench-jct

Both simulators are re-implemented from their description (``pollux``, ``sia``). What is ours may
learn inside a run only; the name of an application is a key to group by, nothing is looked up.
Every workload under ``$BRAIN_BENCH_DATA`` is run whose peers' figures are there. Outcomes are kept
in ``build/jct``: the same code meets the same data once.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.jct import rows
from benchmarks.jct.bench import ROOT, Bench
from benchmarks.jct.sia import rows as sia
from benchmarks.jct.variants import Variant
from benchmarks.report import Row, markdown, publish

#: In the order of the report; each may be run alone.
PARTS: dict[str, Callable[[Bench], list[Row]]] = {
    "faithfulness": rows.faithfulness,
    "service": rows.service,
    "knowledge": rows.knowledge,
    "loads": rows.loads,
    "wrong": rows.wrong,
    "restarts": rows.restarts,
    "sia": sia.rows,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="parts to run; not published")
    parser.add_argument("--workloads", nargs="+", type=int, help="workloads to run; not published")
    parser.add_argument("--simulator", type=Path, help="Pollux's own, to run ours in; original")
    parser.add_argument(
        "--sia-simulator", type=Path, help="Sia's own, to run Brain in; sia/adapter"
    )
    parser.add_argument(
        "--variant", type=int, metavar="SEED", help="other names and lengths; not published"
    )
    arguments = parser.parse_args()
    other = arguments.simulator or arguments.sia_simulator
    bench = Bench(
        workloads=arguments.workloads,
        tell=lambda line: print(line, file=sys.stderr, flush=True),
        variant=None if arguments.variant is None else Variant(arguments.variant),
        kept=None if other else ROOT / "build/jct",
    )
    if arguments.simulator:
        sys.stdout.write(markdown(rows.original(bench, arguments.simulator)) + "\n")
        return
    if arguments.sia_simulator:
        sys.stdout.write(markdown(sia.original(bench, arguments.sia_simulator)) + "\n")
        return
    table = [row for part in arguments.only or PARTS for row in PARTS[part](bench)]
    if arguments.only or arguments.workloads or bench.variant:
        sys.stdout.write(markdown(table) + "\n")
        sys.exit(0 if all(row.met for row in table) else 1)
    publish("jct", "Job completion times in simulation", table)


if __name__ == "__main__":
    main()
