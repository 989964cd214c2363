"""Compares two runs of a program, as pure functions of what was recorded of each run."""

from collections import Counter

from benchmarks.corpus.programs import Program
from benchmarks.corpus.runs import Seen

#: Worlds of one size that stopped and went on: sums are taken in the same order.
_SAME_SIZE = 1e-6
#: A launcher that was signalled: torchrun ends with 1, brain-run with 128 + the signal.
_SIGNALLED = {1, 143}


def between_launchers(program: Program, event: str, theirs: Seen, ours: Seen) -> list[str]:
    """Return a sentence for each difference between brain-run's run and torchrun's run."""
    return [
        *_exit_codes(event, theirs, ours),
        *_unequal("final step", theirs.final_step, ours.final_step),
        *_loads(program, event, ours),
        *_drawn(program, theirs, ours),
        *_left(theirs, ours),
        *(_plain(program, theirs, ours) if event == "plain" else ()),
    ]


def torchrun_failed(event: str, theirs: Seen, ours: Seen) -> str:
    """Return how torchrun's disturbed run failed although brain-run's succeeded; empty if it did
    not fail.

    If torchrun's run failed, brain-run's run can be compared only with its own undisturbed run.
    """
    if event == "plain" or _ended_well(event, theirs) or not _ended_well(event, ours):
        return ""
    last = [line.strip(" |") for line in theirs.last_words.splitlines() if "Error" in line]
    return f"exit codes {theirs.exit_codes}{': ' + last[-1][:200] if last else ''}"


def _ended_well(event: str, seen: Seen) -> bool:
    return not any(seen.exit_codes[1:] if event == "stopped" else seen.exit_codes)


def with_undisturbed(program: Program, event: str, plain: Seen, disturbed: Seen) -> list[str]:
    """Return the differences between a disturbed run and the same launcher's undisturbed run."""
    if not disturbed.disturbed:
        return ["it ended before it could be disturbed"]
    if not program.resumes:
        return []
    most = program.tolerance if event == "resized" else _SAME_SIZE
    missing = plain.losses.keys() - disturbed.losses.keys()
    far = [
        f"step {step}: {float(disturbed.losses[step]):.8g} for {float(loss):.8g}"
        for step, loss in plain.losses.items()
        if step in disturbed.losses
        and abs(float(disturbed.losses[step]) - float(loss)) > most * abs(float(loss))
    ]
    return [
        *([f"{len(missing)} steps are missing"] if missing else ()),
        *([f"{len(far)} losses differ by more than {most:g}, first {far[0]}"] if far else ()),
    ]


def _exit_codes(event: str, theirs: Seen, ours: Seen) -> list[str]:
    if event == "stopped" and {theirs.exit_codes[0], ours.exit_codes[0]} <= _SIGNALLED:
        return _unequal("exit code of the next start", theirs.exit_codes[1:], ours.exit_codes[1:])
    return _unequal("exit codes", theirs.exit_codes, ours.exit_codes)


def _loads(program: Program, event: str, ours: Seen) -> list[str]:
    if event == "plain" or not (program.resumes and ours.disturbed) or any(ours.resumed):
        return []
    return ["no checkpoint was loaded"]


def _drawn(program: Program, theirs: Seen, ours: Seen) -> list[str]:
    """Compare the draws of programs without a seed: no draw may occur twice, and each launcher must
    draw as often.
    """
    if not program.unseeded:
        return []
    twice = [
        f"{name}: {len(seen.drawn) - len(set(seen.drawn))} of {len(seen.drawn)} draws are equal"
        for name, seen in (("torchrun", theirs), ("brain-run", ours))
        if len(set(seen.drawn)) < len(seen.drawn) or not seen.drawn
    ]
    return twice


def _left(theirs: Seen, ours: Seen) -> list[str]:
    more = Counter(ours.left) - Counter(theirs.left)
    return [f"left behind: {', '.join(more)[:200]}"] if more else []


def _plain(program: Program, theirs: Seen, ours: Seen) -> list[str]:
    """Compare the losses, which must be equal to the bit, and every line of every worker."""
    if program.unseeded:
        return []
    unequal = [step for step, loss in theirs.losses.items() if ours.losses.get(step) != loss]
    only_theirs = Counter(theirs.messages) - Counter(ours.messages)
    only_ours = Counter(ours.messages) - Counter(theirs.messages)
    return [
        *([f"{len(unequal)} losses differ, first at step {unequal[0]}"] if unequal else ()),
        *([f"lines of torchrun's alone: {next(iter(only_theirs))[:150]}"] if only_theirs else ()),
        *([f"lines of brain-run's alone: {next(iter(only_ours))[:150]}"] if only_ours else ()),
    ]


def _unequal(what: str, theirs: object, ours: object) -> list[str]:
    return [] if theirs == ours else [f"{what}: {ours} for torchrun's {theirs}"]
