"""Computes rows and bars from the measured changes, and the time of each phase."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from benchmarks.elastic.events import EVENTS, Outcome
from benchmarks.elastic.launchers import Launcher
from benchmarks.elastic.trace import PHASES, Change
from benchmarks.report import Row

TUNED = "torchrun tuned"
IN_PROCESS = "brain-run in process"
#: Launcher -> event -> the smallest ratio of tuned torchrun's gap to its own.
_RATIOS: Mapping[str, Mapping[str, float]] = {
    "brain-run": {"join": 12, "leave": 12, "kill": 10, "crash": 10},
    "brain-run, heavy imports": {"join": 12, "leave": 12, "kill": 10, "crash": 10},
    "brain-run memory": {"join": 15, "leave": 20, "kill": 18, "crash": 13},
    IN_PROCESS: {"join": 50, "leave": 80, "kill": 60, "crash": 40, "back": 25},
}
#: Launcher -> event -> the longest idle time allowed, and the longest gap.
_IDLE_SECONDS: Mapping[str, Mapping[str, float]] = {
    "brain-run memory": {"join": 0.45, "leave": 0.4, "kill": 0.45, "crash": 0.45}
}
_GAP_SECONDS: Mapping[str, Mapping[str, float]] = {
    IN_PROCESS: {"join": 0.15, "leave": 0.12, "kill": 0.2}
}
_SPOKEN = {
    "join": "join of a ready node",
    "leave": "graceful leave",
    "kill": "node killed",
    "crash": "worker crash",
    "back": "worker crash, shrink and growing back summed",
}


def rows(outcomes: Sequence[Outcome], launchers: Iterable[Launcher]) -> list[Row]:
    """Return a row for each launcher and event, compared with tuned torchrun for that script."""
    made = []
    for launcher in launchers:
        if launcher.absent:
            note = f"not run: {launcher.absent}"
            made.append(Row(metric=launcher.name, value=None, unit="s", note=note))
            continue
        for event in EVENTS:
            made += _rows_of(outcomes, launcher, event.name)
    return made


def _rows_of(outcomes: Sequence[Outcome], launcher: Launcher, event: str) -> list[Row]:
    seen = changes(outcomes, launcher.name, event)
    failed = [o.failure for o in outcomes if (o.launcher, o.event) == (launcher.name, event)]
    failures = [reason for reason in failed if reason]
    metric = f"{_SPOKEN[event]}, {launcher.name}"
    peer = "" if launcher.name == TUNED else _peer(launcher.name)
    beside = changes(outcomes, peer, "crash" if event == "back" else event)
    idle = _IDLE_SECONDS.get(launcher.name, {}).get(event)
    ratio_bar = _RATIOS.get(launcher.name, {}).get(event) if beside else None
    if not seen:
        why = f"failed: {failures[0].partition(chr(10))[0]}" if failures else "not staged"
        missed = Row(metric=f"{metric}: gap", value=None, unit="s", ratio_bar=ratio_bar, note=why)
        return [missed] if failures else []
    note = f"[{spread(c.gap_seconds for c in seen)}] n={len(seen)}"
    if failures:
        note += f", {len(failures)} more failed"
    found = [
        Row(
            metric=f"{metric}: gap",
            value=_median(seen, lambda c: c.gap_seconds),
            unit="s",
            peer=peer,
            peer_value=_median(beside, lambda c: c.gap_seconds) if beside else None,
            bar=_GAP_SECONDS.get(launcher.name, {}).get(event),
            ratio_bar=ratio_bar,
            note=note,
        )
    ]
    if idle is not None:
        found.append(
            Row(
                metric=f"{metric}: idle",
                value=_median(seen, lambda c: c.idle_seconds),
                unit="s",
                bar=idle,
                note=f"[{spread(c.idle_seconds for c in seen)}]",
            )
        )
    lost = [change.steps_lost for change in seen]
    planned = event in ("join", "leave") and launcher.name.startswith("brain-run")
    none = planned or launcher.in_process
    found.append(
        Row(
            metric=f"{metric}: steps lost, {'worst' if none else 'median'}",
            value=max(lost) if none else median(lost),
            unit="steps",
            peer=peer,
            peer_value=median(c.steps_lost for c in beside) if beside else None,
            bar=0 if none else None,
        )
    )
    return found


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return everything that was measured of each launcher and event, as Markdown."""
    head = ("launcher", "event", "n", "gap", "min..max", "idle", "until further", "lost", "asked")
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for launcher, event in _kinds(outcomes):
        seen = changes(outcomes, launcher, event)
        cells = (
            launcher,
            event,
            str(len(seen)),
            f"{_median(seen, lambda c: c.gap_seconds):.3f}",
            spread(c.gap_seconds for c in seen),
            f"{_median(seen, lambda c: c.idle_seconds):.3f}",
            f"{_median(seen, lambda c: c.effective_seconds):.3f}",
            f"{median(c.steps_lost for c in seen):g}",
            f"{_median(seen, lambda c: c.asked_seconds):.2f}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def phases(outcomes: Sequence[Outcome]) -> str:
    """Return the median milliseconds of each phase of the gaps, for rank 0 of the new world."""
    lines = [
        "| launcher | event | " + " | ".join(PHASES) + " |",
        "|---|---|" + "---|" * len(PHASES),
    ]
    for launcher, event in _kinds(outcomes):
        seen = [change for change in changes(outcomes, launcher, event) if change.phases]
        if not seen:  # processes that stay have no phases
            continue
        cells = [f"{1000 * median(c.phases[name] for c in seen):.0f}" for name in PHASES]
        lines.append(f"| {launcher} | {event} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def changes(outcomes: Iterable[Outcome], launcher: str, event: str) -> list[Change]:
    """Return the measurements of one kind of event under one launcher."""
    return [
        o.change
        for o in outcomes
        if o.launcher == launcher and o.event == event and o.change is not None
    ]


def spread(values: Iterable[float]) -> str:
    """Return the smallest and the largest value as a phrase."""
    found = list(values)
    return f"{min(found):.3g}..{max(found):.3g}"


def _peer(launcher: str) -> str:
    return f"{TUNED}, heavy imports" if launcher.endswith("heavy imports") else TUNED


def _kinds(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    """Return the launchers in their order, each with its events that were measured."""
    names = list(dict.fromkeys(outcome.launcher for outcome in outcomes))
    kinds = [(name, event.name) for name in names for event in EVENTS]
    return [kind for kind in kinds if changes(outcomes, *kind)]


def _median(seen: Sequence[Change], of: Callable[[Change], float]) -> float:
    return median(of(change) for change in seen)
