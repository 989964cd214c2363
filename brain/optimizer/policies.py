"""Policies that choose a size. Each wraps another one and adds one concern; see ``SINGLE_JOB``.

A wrapper either narrows the situation before it asks the wrapped policy (its base), holds without
asking the base, or refuses the size that the base chose. models.md section 5 has the formulas and
constants; the record of the one-job policy in docs/decisions says why the code deviates from that
section.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from brain.errors import Undetermined
from brain.optimizer import guards
from brain.optimizer.narrowing import ALONE, Narrowing, narrowed
from brain.optimizer.situation import Choice, Policy, Situation
from brain.optimizer.worth import EXPONENT, credit, free_trial, score, worth
from brain.typeset import change, count, duration, percent, quantity, ratio

#: Least utility that a change must gain, however cheap it is.
_LEAST_ADVANTAGE = 0.03


@dataclass(frozen=True, slots=True)
class Efficient:
    """Chooses the size with the largest ``ln goodput - EXPONENT * ln replicas``.

    With the exponent 0.5 twice the replicas must bring 1.41 times the goodput. A larger, unmeasured
    size gets a credit, because measuring it is informative. The credit is a share of the size's
    uncertainty. If the owner declared the work of the run, the credit decreases as the end of the
    run approaches, because the information is then of less use.
    """

    def choose(self, situation: Situation) -> Choice:
        present = situation.replicas
        scores = {present: score(situation, present)}
        why_not = list(situation.ruled_out)
        for size in situation.sizes:
            try:
                scores[size] = score(situation, size)
            except Undetermined as unknown:
                why_not.append((size, str(unknown)))
        if situation.untenable and len(scores) > 1:
            del scores[present]
        best = max(scores, key=lambda size: (scores[size], -size))
        why_not += [(size, self._why_not(situation, size, best)) for size in scores if size != best]
        choice = self._move(situation, best)
        if best == present:
            choice = self._stay(situation, scores)
        return replace(choice, why_not=tuple(pair for pair in why_not if pair[0] != present))

    def _why_not(self, situation: Situation, size: int, best: int) -> str:
        needed = (size / situation.replicas) ** EXPONENT
        factor = situation.predict(size).examples_per_second / situation.rate
        if size > situation.replicas and factor < needed:
            return (
                f"{ratio(factor)} expected, but at least {ratio(needed)} is needed to pay for "
                "the replicas"
            )
        if size < situation.replicas and factor < needed:
            return (
                f"keeps only {percent(factor)} of the throughput; the saving is worth it only at "
                f"{percent(needed)} or more"
            )
        return f"{count(best, 'replica')} give more throughput for their price"

    def _stay(self, situation: Situation, scores: Mapping[int, float]) -> Choice:
        present = situation.replicas
        others = {size: score for size, score in scores.items() if size != present}
        now = f"{quantity(situation.rate, situation.unit)} with {count(present, 'replica')}"
        if others:
            second = max(others, key=lambda size: others[size])
            share = situation.predict(second).examples_per_second / situation.rate
            reason = f"{now}; the next best size, {second}, would make {ratio(share)} of that"
        elif len(situation.sizes) > 1:
            reason = f"{now}; no other size can be predicted from the measurements"
        else:
            reason = f"{now}, the only size possible now"
        return Choice(
            replicas=present,
            code="at-best",
            reason=reason,
            next_step=free_trial(situation, others) or "Brain looks again every turn.",
        )

    def _move(self, situation: Situation, best: int) -> Choice:
        predicted = situation.predict(best)
        rate = quantity(predicted.examples_per_second, situation.unit)
        now = quantity(situation.rate, situation.unit)
        share = predicted.examples_per_second / situation.rate
        if situation.untenable:
            code = "keeps-limits"
            reason = situation.untenable.by(count(best, "replica"), rate)
        elif best < situation.replicas:
            code = "saves-replicas"
            reason = (
                f"{best} of {situation.replicas} replicas keep {percent(share)} of the throughput: "
                f"{rate} of {now}"
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
class Narrowed:
    """Lets the wrapped policy (``base``) choose among the sizes that no narrowing excludes."""

    base: Policy
    by: Sequence[Narrowing]

    def choose(self, situation: Situation) -> Choice:
        return self.base.choose(narrowed(situation, self.by))


@dataclass(frozen=True, slots=True)
class WorthARestart:
    """Keeps the present size unless the gain of the chosen size soon recovers twice the cost of the
    restart.

    The gain of a larger size is measured in goodput, the gain of a smaller size in goodput per
    price. A restart costs ``restart_seconds`` of work. The gain must recover twice this cost before
    the job ends; if the end is not declared, the remaining time is assumed to equal the job's age.
    If the owner's limit requires a change, the cost is ignored.
    """

    base: Policy

    def choose(self, situation: Situation) -> Choice:
        choice = self.base.choose(situation)
        if choice.replicas == situation.replicas or choice.code == "keeps-limits":
            return choice
        limits, size = situation.settings, choice.replicas
        hoped = worth(situation, size, credit(situation, size))
        advantage = math.expm1(score(situation, size) - score(situation, situation.replicas))
        gain = max(worth(situation, size), advantage)
        cost = duration(situation.restart_seconds)
        if hoped < limits.minimum_gain:
            why = (
                f"{change(hoped)} expected, but a restart must bring "
                f"at least {change(limits.minimum_gain)}"
            )
        elif advantage < _LEAST_ADVANTAGE:
            why = f"a gain of {change(hoped)} hardly pays for {count(size, 'replica')}"
        elif situation.restart_seconds / gain > limits.payback_seconds:
            pays = duration(situation.restart_seconds / gain)
            why = f"{change(gain)} pays for a restart of {cost} after {pays}, "
            why += f"but the limit is {duration(limits.payback_seconds)}"
        elif gain * situation.remaining_seconds < 2 * situation.restart_seconds:
            rest = duration(situation.remaining_seconds)
            why = f"{change(gain)} over the remaining {rest} is not worth a restart of {cost}"
        else:
            return choice
        return Choice(
            replicas=situation.replicas,
            code="not-worth-restart",
            reason=why,
            next_step=(
                "Brain decides again every turn; with more remaining time the restart may be "
                "worth it."
            ),
            why_not=(*choice.why_not, (choice.replicas, "not worth a restart")),
        )


@dataclass(frozen=True, slots=True)
class Guarded:
    """Holds if a guard applies; otherwise lets the wrapped policy (``base``) choose."""

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


#: The policy of a job that is a pool of its own.
SINGLE_JOB: Policy = Guarded(WorthARestart(Narrowed(Efficient(), by=ALONE)), by=guards.ALL)
