"""Policies wrap policies, one concern each; ``SINGLE_JOB`` reads as what Brain does.

A wrapper narrows the situation before it asks its base, holds without asking, or refuses what
the base chose.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from brain.errors import Undetermined
from brain.optimizer import guards
from brain.optimizer.situation import Choice, Situation, deviation
from brain.typeset import change, count, duration, percent, quantity, ratio

#: Seconds from which on there is time to explore boldly; the optimism below and above it, and the
#: share of a declared run after which it ends: measured on the tables of Pollux and Sia.
_LONG_SECONDS = 3 * 3600.0
_BOLD, _CAUTIOUS, _LAST = 1.0, 0.5, 0.8

#: Price of replicas in throughput: 0 buys speed alone, 1 the lowest cost per example.
EXPONENT = 0.5


class Policy(Protocol):
    """Chooses a size for one job."""

    def choose(self, situation: Situation) -> Choice:
        """Return the size the job should have; never one outside of ``situation.sizes``."""
        ...


@dataclass(frozen=True, slots=True)
class Efficient:
    """The size of the largest ``ln throughput - EXPONENT * ln replicas``.

    With the exponent 0.5 a doubling must bring 1.41 times the throughput. A larger size that was
    never measured gets credit for what there is to learn: a share of its uncertainty that falls
    as the end comes near, where nothing is left to learn it for (models.md section 5: this rule
    had the least regret on the published tables).
    """

    def choose(self, situation: Situation) -> Choice:
        present = situation.replicas
        scores = {present: self._score(situation, present)}
        why_not = list(situation.ruled_out)
        for size in situation.sizes:
            try:
                scores[size] = self._score(situation, size)
            except Undetermined as unknown:
                why_not.append((size, str(unknown)))
        best = max(scores, key=lambda size: (scores[size], -size))
        why_not += [(size, self._why_not(situation, size, best)) for size in scores if size != best]
        choice = self._move(situation, best)
        if best == present:
            choice = self._stay(situation, scores)
        return replace(choice, why_not=tuple(pair for pair in why_not if pair[0] != present))

    def utility(self, situation: Situation, size: int) -> float:
        """Log throughput less the price of its replicas."""
        rate = situation.predict(size).examples_per_second
        return math.log(rate) - EXPONENT * math.log(size)

    def _score(self, situation: Situation, size: int) -> float:
        predicted = situation.predict(size)
        credit = 0.0
        if predicted.exploring and size > situation.replicas:
            credit = _optimism(situation) * min(deviation(predicted), 0.6)
        return self.utility(situation, size) + credit

    def _why_not(self, situation: Situation, size: int, best: int) -> str:
        needed = (size / situation.replicas) ** EXPONENT
        factor = situation.predict(size).examples_per_second / situation.rate
        if size > situation.replicas and factor < needed:
            return f"{ratio(factor)} expected, {ratio(needed)} would pay for the replicas"
        if size < situation.replicas and factor < needed:
            return f"keeps {percent(factor)} only; {percent(needed)} would be worth it"
        return f"{count(best, 'replica')} promise more for their price"

    def _stay(self, situation: Situation, scores: Mapping[int, float]) -> Choice:
        present = situation.replicas
        others = {size: score for size, score in scores.items() if size != present}
        now = f"{quantity(situation.rate, situation.unit)} with {count(present, 'replica')}"
        if others:
            second = max(others, key=lambda size: others[size])
            share = situation.predict(second).examples_per_second / situation.rate
            reason = f"{now}; the next best size, {second}, would make {ratio(share)} of that"
        elif len(situation.sizes) > 1:
            reason = f"{now}; no other size can be predicted from what was seen"
        else:
            reason = f"{now}, the only size possible now"
        return Choice(
            replicas=present,
            code="at-best",
            reason=reason,
            next_step="Brain looks again every turn.",
        )

    def _move(self, situation: Situation, best: int) -> Choice:
        predicted = situation.predict(best)
        rate = quantity(predicted.examples_per_second, situation.unit)
        now = quantity(situation.rate, situation.unit)
        share = predicted.examples_per_second / situation.rate
        if best < situation.replicas:
            code = "saves-replicas"
            reason = (
                f"{best} of {situation.replicas} replicas keep {percent(share)}: {rate} of {now}"
            )
        elif predicted.exploring:
            code = "exploring"
            reason = (
                f"{rate} expected with {best} replicas, {ratio(share)} of {now}; to be measured"
            )
        else:
            code = "scales-well"
            reason = f"{rate} with {count(best, 'replica')}, {ratio(share)} of {now} now"
        return Choice(replicas=best, code=code, reason=reason, next_step="")


@dataclass(frozen=True, slots=True)
class WithinBounds:
    """Only sizes that fit the pool; the job's bounds and unit made the list."""

    base: Policy

    def choose(self, situation: Situation) -> Choice:
        why = f"{count(situation.room, 'replica')} fit the pool now"
        too_large = [size for size in situation.sizes if size > situation.room]
        return self.base.choose(_without(situation, too_large, why))


@dataclass(frozen=True, slots=True)
class NotInVain:
    """Not a size that fell short lately."""

    base: Policy

    def choose(self, situation: Situation) -> Choice:
        why = "it fell short of its promise within the last 6 h"
        return self.base.choose(_without(situation, situation.disappointed, why))


@dataclass(frozen=True, slots=True)
class WorthARestart:
    """Keeps the present size unless the gain pays for the restart, soon and with time to spare.

    The gain of a larger size is throughput; that of a smaller one is what its replicas do more,
    each. A restart loses ``restart_seconds`` of work; the gain must win twice that before the
    expected end, which for an undeclared one is as far ahead as the beginning is behind.
    """

    base: Policy

    def choose(self, situation: Situation) -> Choice:
        choice = self.base.choose(situation)
        if choice.replicas == situation.replicas:
            return choice
        limits, gain = situation.settings, worth(situation, choice.replicas)
        cost = duration(situation.restart_seconds)
        if gain < limits.minimum_gain:
            why = f"{change(gain)} expected, a restart needs {change(limits.minimum_gain)}"
        elif situation.restart_seconds / gain > limits.payback_seconds:
            pays = duration(situation.restart_seconds / gain)
            why = f"{change(gain)} pays for a restart of {cost} after {pays}, "
            why += f"{duration(limits.payback_seconds)} is the limit"
        elif gain * situation.remaining_seconds < 2 * situation.restart_seconds:
            rest = duration(situation.remaining_seconds)
            why = f"{change(gain)} over {rest} to come is not worth a restart of {cost}"
        else:
            return choice
        return Choice(
            replicas=situation.replicas,
            code="not-worth-restart",
            reason=why,
            next_step="Brain looks again every turn; more time to come may make it worth it.",
            why_not=(*choice.why_not, (choice.replicas, "not worth a restart")),
        )


@dataclass(frozen=True, slots=True)
class Guarded:
    """Holds where a guard says so, the first one that does; asks the base where none does."""

    base: Policy
    by: Sequence[Callable[[Situation], guards.Hold | None]]

    def choose(self, situation: Situation) -> Choice:
        for guard in self.by:
            hold = guard(situation)
            if hold is not None:
                return Choice(
                    replicas=situation.replicas,
                    code=hold.code,
                    reason=hold.reason,
                    next_step=hold.next_step,
                    why_not=tuple((size, hold.short) for size in situation.sizes),
                )
        return self.base.choose(situation)


def worth(situation: Situation, size: int) -> float:
    """Gain of a size: in throughput where it is larger, in throughput for its price where smaller.

    0.2 is 20 %.
    """
    share = situation.predict(size).examples_per_second / situation.rate
    price = math.pow(min(1.0, size / situation.replicas), EXPONENT)
    return share / price - 1


def _without(situation: Situation, sizes: Collection[int], why: str) -> Situation:
    """The situation with ``sizes`` ruled out; the present one always stays."""
    out = [size for size in situation.sizes if size in sizes and size != situation.replicas]
    return replace(
        situation,
        sizes=tuple(size for size in situation.sizes if size not in out),
        ruled_out=(*situation.ruled_out, *((size, why) for size in out)),
    )


def _optimism(situation: Situation) -> float:
    elapsed, rest = situation.elapsed_seconds, situation.remaining_seconds
    if situation.end_declared and elapsed > _LAST * (elapsed + rest):
        return 0.0
    return _BOLD if rest >= _LONG_SECONDS else _CAUTIOUS


#: What Brain does for a job that is a pool of its own.
SINGLE_JOB: Policy = Guarded(WorthARestart(NotInVain(WithinBounds(Efficient()))), by=guards.ALL)
