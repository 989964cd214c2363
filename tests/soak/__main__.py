"""``make soak``: a storm of 15 minutes, then 200 random changes under DDP, by restarts and without,
then 500 fresh starts of a job whose processes stay.

Prints its seed; the first broken promise stops it, and the directory with the evidence is kept.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.hosts.machines import cannot_isolate
from tests.soak import changes, starts, storm


def main() -> int:
    """Run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--hosts", type=int, default=5)
    parser.add_argument("--changes", type=int, default=200, help="by restarts")
    parser.add_argument("--in-process", type=int, default=200, help="changes in process")
    parser.add_argument("--starts", type=int, default=500, help="fresh starts in process")
    parser.add_argument("--start-seconds", type=float, default=60.0, help="time of each")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    directory = Path(tempfile.mkdtemp(prefix="soak-"))
    print(f"seed {seed}, evidence in {directory}", flush=True)
    if refused := cannot_isolate():
        print(f"loopback stands for hosts, networks do not fail: {refused}", flush=True)
    began = time.monotonic()
    try:
        if options.seconds:
            there = directory / "storm"
            storm.run(there, seed=seed, seconds=options.seconds, count=options.hosts, say=_say)
        if options.changes:
            changes.run(directory / "changes", seed=seed, changes=options.changes, say=_say)
        if options.in_process:
            there = directory / "in-process"
            script, count = changes.IN_PROCESS, options.in_process
            changes.run(there, seed=seed, changes=count, script=script, say=_say)
        if options.starts:
            there, seconds = directory / "starts", options.start_seconds
            starts.run(there, starts=options.starts, start_seconds=seconds, say=_say)
    except (Exception, KeyboardInterrupt) as broken:  # noqa: BLE001  the evidence comes first
        text = f"{type(broken).__name__}: {broken}"
        directory.mkdir(exist_ok=True)
        (directory / "violation.txt").write_text(text)
        print(f"{text[:8000]}\nseed {seed}: stopped, evidence in {directory}", file=sys.stderr)
        return 1
    print(f"seed {seed}: all promises kept in {time.monotonic() - began:.0f} s")
    shutil.rmtree(directory)
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
