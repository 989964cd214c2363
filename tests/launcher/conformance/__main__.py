"""Record what torchrun does, or run torchrun and brain-run side by side.

python -m tests.launcher.conformance record    writes recorded/torchrun-<version>.json
python -m tests.launcher.conformance           both live; exit 1 on an unexplained difference
…[record] CASE …                               these cases only
… --preload=none [CASE …]                      brain-run gets these flags as well
"""

import importlib.metadata
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.launcher.conformance.cases import CASES
from tests.launcher.conformance.differences import compare
from tests.launcher.conformance.observing import observe

RECORDED = Path(__file__).parents[1] / "recorded"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
BRAIN_RUN = [sys.executable, "-m", "launcher.cli"]


def recorded() -> Path:
    """Where the answers of the installed torchrun are kept."""
    version = importlib.metadata.version("torch").split("+")[0].split(".")
    return RECORDED / f"torchrun-{version[0]}.{version[1]}.json"


def record(names: list[str]) -> None:
    """Write down what the installed torchrun does."""
    path = recorded()
    known = json.loads(path.read_text()) if names and path.exists() else {}
    wanted = names or list(CASES)
    with ThreadPoolExecutor(2) as pool:
        seen = pool.map(lambda name: observe(TORCHRUN, CASES[name]), wanted)
        for name, observed in zip(wanted, seen, strict=True):
            known[name] = observed
            print(f"{name}: {observed['exit_codes']}", flush=True)
            content = json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False)
            path.write_text(f"{content}\n")


def side_by_side(names: list[str], flags: list[str]) -> int:
    """Print how both behave, case by case; returns the number of unexplained differences."""

    def both(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        return observe(TORCHRUN, CASES[name]), observe([*BRAIN_RUN, *flags], CASES[name])

    unexplained = 0
    with ThreadPoolExecutor(2) as pool:
        for name, (theirs, ours) in zip(names, pool.map(both, names), strict=True):
            found = compare(name, theirs, ours)
            odd = [each for each in found if each.why is None]
            unexplained += len(odd)
            word = "DIFFERS" if odd else f"same but for {len(found)}" if found else "same"
            print(f"{name:<40} {word}", flush=True)
            for why in sorted({each.why for each in found if each.why}):
                print(f"{'':<40}   meant: {why}")
            for each in odd:
                print(f"{'':<40}   {each.where}\n      torchrun:  {each.theirs[:300]}")
                print(f"      brain-run: {each.ours[:300]}")
    print(f"{len(names)} cases, {unexplained} unexplained differences")
    return unexplained


def main(arguments: list[str]) -> int:
    """Do as told; returns the exit code."""
    if arguments[:1] == ["record"]:
        record(arguments[1:])
        return 0
    names = [each for each in arguments if not each.startswith("-")]
    flags = [each for each in arguments if each.startswith("-")]
    return 1 if side_by_side(names or list(CASES), flags) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
