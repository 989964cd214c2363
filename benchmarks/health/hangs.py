"""Tests hang detection on simulated worlds in virtual time: the launcher's own rules, with two
heartbeats per second.

A world of eight ranks steps every ``STEP_SECONDS``, with noise. About every hundred steps it
evaluates or saves for ten times as long; the probe sees only some of these phases. In some worlds
one rank then stops for ever, at any point.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from launcher.values.hang import rules

STEP_SECONDS, PHASE = 1.0, 10
RANKS, BEAT_SECONDS = 8, 0.5
PATIENCE = rules.Patience(seconds=15.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """An interval of a world in which no rank steps."""

    seconds: float
    phase: rules.QuietPhase
    #: The probe sees it: signs of life, or that a save has begun.
    seen: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The decision of hang detection about a world."""

    #: When it stopped for ever, and when that was found; None: it did not, or was not.
    stopped_at: float | None
    found_at: float | None
    budget_seconds: float
    phase: rules.QuietPhase | None = None
    blamed: tuple[int, ...] = ()


def acts(random: np.random.Generator, stops_in: rules.QuietPhase | None) -> Iterator[Act]:
    """Return the intervals of a world: imports first, then steps with phases between them; the last
    interval never ends.
    """
    first = rules.QuietPhase.FIRST_STEP
    yield Act(seconds=float(random.uniform(5, 60)), phase=first)
    if stops_in is first:
        return
    for _ in range(int(random.integers(3, 9))):
        for _ in range(int(random.integers(20, 200))):
            noisy = STEP_SECONDS * (1 + 0.05 * float(random.standard_normal()))
            yield Act(seconds=max(0.5, noisy), phase=rules.QuietPhase.STEPS)
        kind = rules.QuietPhase.SAVING if random.random() < 0.5 else rules.QuietPhase.EVALUATING
        took = PHASE * STEP_SECONDS * float(random.uniform(0.8, 1.2))
        yield Act(seconds=took, phase=kind, seen=bool(random.random() < 0.5))


def world(seed: int, stops_in: rules.QuietPhase | None) -> Outcome:
    """Simulate one world until it ends, or until a hang is found."""
    random = np.random.default_rng([seed, 5])
    script = list(acts(random, stops_in))
    if stops_in is rules.QuietPhase.FIRST_STEP:
        script = [Act(seconds=float("inf"), phase=stops_in)]
    elif stops_in is not None:
        script.append(Act(seconds=float("inf"), phase=stops_in))
    blamed = int(random.integers(RANKS))
    pace, now, steps, step_at = rules.begin(0.0), 0.0, 0, None
    stopped_at, life_at = None, None
    beat = BEAT_SECONDS
    for act in script:
        if act.seconds == float("inf"):
            stopped_at = now
        end = now + act.seconds
        visible = act.seen and act.phase in (rules.QuietPhase.SAVING, rules.QuietPhase.EVALUATING)
        if visible:
            life_at = now
        while beat < end:
            if visible and stopped_at is None and act.phase is rules.QuietPhase.EVALUATING:
                life_at = beat  # a batch at a time
            ranks = _ranks(act, visible, steps, step_at, life_at, stopped_at, blamed)
            pace = rules.paced(pace, ranks, beat)
            quiet = rules.quiet(pace, ranks, beat, PATIENCE)
            # Agents see that imports and the first step are busy until the world stops.
            busy = steps == 0 and stopped_at is None
            if quiet is not None and quiet.too_long(busy=busy, waiting=True):
                return Outcome(
                    stopped_at=stopped_at,
                    found_at=beat,
                    budget_seconds=quiet.budget_seconds,
                    phase=quiet.phase,
                    blamed=(blamed,) if blamed in quiet.suspects else quiet.suspects,
                )
            beat += BEAT_SECONDS
        now = end
        if act.phase is rules.QuietPhase.STEPS:
            steps, step_at = steps + 1, now
    return Outcome(stopped_at=stopped_at, found_at=None, budget_seconds=0.0)


def _ranks(
    act: Act,
    visible: bool,
    steps: int,
    step_at: float | None,
    life_at: float | None,
    stopped_at: float | None,
    blamed: int,
) -> list[rules.RankObserved]:
    saving = visible and act.phase is rules.QuietPhase.SAVING
    evaluating = visible and act.phase is rules.QuietPhase.EVALUATING
    return [
        rules.RankObserved(
            rank=rank,
            steps=steps,
            step_at=step_at,
            life_at=life_at,
            # Where the world stops in a phase, the one that stopped is in the middle of it.
            saving=saving and (stopped_at is None or rank == blamed),
            evaluating=evaluating and (stopped_at is None or rank == blamed),
        )
        for rank in range(RANKS)
    ]
