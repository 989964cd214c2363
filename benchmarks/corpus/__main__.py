"""Run the corpus and publish what differs.

python -m benchmarks.corpus               all but what takes long; writes the results
python -m benchmarks.corpus --full        the rest too
python -m benchmarks.corpus --only TEXT   programs with TEXT in their name; their rows are renewed
"""

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

from benchmarks.corpus.comparing import between_launchers, with_undisturbed
from benchmarks.corpus.environments import installed
from benchmarks.corpus.programs import GROUPS, PROGRAMS, Program
from benchmarks.corpus.report import Result, keep, publish_results
from benchmarks.corpus.runs import EVENTS, Seen, run

LAUNCHERS = ("torchrun", "brain-run")


def main() -> None:
    """Do as told."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--events", default=",".join(EVENTS))
    told = parser.parse_args()
    events = [event for event in EVENTS if event in told.events.split(",")]
    wanted = [each for each in PROGRAMS if told.only in each.name and (told.full or not each.slow)]
    began, stamp = time.monotonic(), f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
    kept: list[Result] = []
    for program in wanted:
        results = [replace(each, began=stamp) for each in _results(program, events)]
        if len(events) == len(EVENTS):
            kept = keep(results)
    print(f"{len(wanted)} programs in {(time.monotonic() - began) / 60:.0f} minutes")
    if kept:
        publish_results(kept)


def _results(program: Program, events: Sequence[str]) -> list[Result]:
    if program.needs:
        named = {"program": program.name, "origin": program.origin, "needs": program.needs}
        return [Result(event="plain", **named)]
    place = installed(program.group, GROUPS[program.group])
    results, seen = [], dict[tuple[str, str], Seen]()
    for event in (each for each in events if each not in program.too_short_for):
        # Both at once: a run mostly waits, and what is compared depends on no clock.
        with ThreadPoolExecutor() as pool:
            runs = [pool.submit(run, program, each, event, place) for each in LAUNCHERS]
        for launcher, future in zip(LAUNCHERS, runs, strict=True):
            seen[launcher, event] = future.result()
        results.append(_result(program, event, seen))
    return results


def _result(program: Program, event: str, seen: dict[tuple[str, str], Seen]) -> Result:
    theirs, ours = (seen[launcher, event] for launcher in LAUNCHERS)
    found = between_launchers(program, event, theirs, ours)
    for launcher in LAUNCHERS if event != "plain" and (LAUNCHERS[0], "plain") in seen else ():
        odd = with_undisturbed(program, event, seen[launcher, "plain"], seen[launcher, event])
        found += [f"{launcher}: {each}" for each in odd]
    seconds = max(theirs.seconds, ours.seconds)
    print(f"{program.name:<45} {event:<8} {seconds:5.0f} s  {'DIFFERS' if found else 'same'}")
    for each in found:
        print(f"    {each}")
    if found:
        for seen_by, name in ((theirs, "torchrun"), (ours, "brain-run")):
            said = "\n".join(f"    | {line}" for line in seen_by.last_words.splitlines()[-12:])
            print(f"    {name}: {seen_by.exit_codes}, last words:\n{said}", flush=True)
    return Result(
        program=program.name,
        origin=program.origin,
        event=event,
        differences=tuple(found),
        seconds=round(seconds, 1),
    )


if __name__ == "__main__":
    main()
