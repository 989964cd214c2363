"""Run the corpus and publish what differs.

python -m benchmarks.corpus               all but what takes long; writes the results
python -m benchmarks.corpus --full        the rest too
python -m benchmarks.corpus --only TEXT   programs with TEXT in their name, nothing is written
"""

import argparse
import time
from collections.abc import Iterable, Sequence

from benchmarks.corpus.comparing import between_launchers, with_undisturbed
from benchmarks.corpus.environments import installed
from benchmarks.corpus.programs import GROUPS, PROGRAMS, Program
from benchmarks.corpus.report import Result, publish_results
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
    began = time.monotonic()
    results = list(_all(wanted, events))
    print(f"{len(wanted)} programs in {(time.monotonic() - began) / 60:.0f} minutes")
    if not told.only and len(events) == len(EVENTS):
        publish_results(results, began)


def _all(programs: Iterable[Program], events: Sequence[str]) -> Iterable[Result]:
    for program in programs:
        if program.needs:
            yield Result(program=program, event="plain", differences=(), seconds=0.0)
            continue
        place = installed(program.group, GROUPS[program.group])
        seen: dict[tuple[str, str], Seen] = {}
        for event in events:
            for launcher in LAUNCHERS:
                seen[launcher, event] = run(program, launcher, event, place)
            yield _result(program, event, seen)


def _result(program: Program, event: str, seen: dict[tuple[str, str], Seen]) -> Result:
    theirs, ours = (seen[launcher, event] for launcher in LAUNCHERS)
    found = between_launchers(program, event, theirs, ours)
    for launcher in LAUNCHERS if event != "plain" and (LAUNCHERS[0], "plain") in seen else ():
        odd = with_undisturbed(program, event, seen[launcher, "plain"], seen[launcher, event])
        found += [f"{launcher}: {each}" for each in odd]
    seconds = theirs.seconds + ours.seconds
    print(f"{program.name:<45} {event:<8} {seconds:5.0f} s  {'DIFFERS' if found else 'same'}")
    for each in found:
        print(f"    {each}")
    if found:
        for seen_by, name in ((theirs, "torchrun"), (ours, "brain-run")):
            said = "\n".join(f"    | {line}" for line in seen_by.last_words.splitlines()[-12:])
            print(f"    {name}: {seen_by.exit_codes}, last words:\n{said}", flush=True)
    return Result(program=program, event=event, differences=tuple(found), seconds=seconds)


if __name__ == "__main__":
    main()
