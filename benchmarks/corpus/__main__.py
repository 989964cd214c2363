"""Runs the corpus and publishes the differences.

python -m benchmarks.corpus               all programs but the slow ones; writes the results
python -m benchmarks.corpus --full        the slow programs, too
python -m benchmarks.corpus --only TEXT   programs with TEXT in their name; replaces their rows
"""

import argparse
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.corpus.comparing import between_launchers, torchrun_failed, with_undisturbed
from benchmarks.corpus.environments import installed
from benchmarks.corpus.programs import GROUPS, PROGRAMS, Program
from benchmarks.corpus.report import Result, keep, publish_results
from benchmarks.corpus.runs import EVENTS, Seen, run

LAUNCHERS = ("torchrun", "brain-run")


def main() -> None:
    """Run the requested programs and publish the differences."""
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
            runs = [
                pool.submit(_torchrun, program, event, place),
                pool.submit(run, program, LAUNCHERS[1], event, place),
            ]
        for launcher, future in zip(LAUNCHERS, runs, strict=True):
            seen[launcher, event] = future.result()
        results.append(_result(program, event, seen))
    return results


def _torchrun(program: Program, event: str, place: Path) -> Seen:
    """Return a run under torchrun; an undisturbed run that hung is repeated once, because others
    are compared with it.
    """
    seen = run(program, LAUNCHERS[0], event, place)
    if event == "plain" and -signal.SIGKILL in seen.exit_codes:
        return replace(run(program, LAUNCHERS[0], event, place), hung=True)
    return seen


def _result(program: Program, event: str, seen: dict[tuple[str, str], Seen]) -> Result:
    theirs, ours = (seen[launcher, event] for launcher in LAUNCHERS)
    peer = torchrun_failed(event, theirs, ours)
    found = [] if peer else between_launchers(program, event, theirs, ours)
    for launcher in LAUNCHERS if event != "plain" and (LAUNCHERS[0], "plain") in seen else ():
        if peer and launcher == LAUNCHERS[0]:
            continue
        odd = with_undisturbed(program, event, seen[launcher, "plain"], seen[launcher, event])
        found += [f"{launcher}: {each}" for each in odd]
    seconds = max(theirs.seconds, ours.seconds)
    print(f"{program.name:<45} {event:<8} {seconds:5.0f} s  {'DIFFERS' if found else 'same'}")
    if peer := peer or ("it did not end, and was run again" if theirs.hung else ""):
        print(f"    torchrun alone failed: {peer}")
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
        torchrun_failed=peer,
        seconds=round(seconds, 1),
    )


if __name__ == "__main__":
    main()
