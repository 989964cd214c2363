"""Chooses the first size of a job, with the reason, by the rule for jobs that do not
share a pool.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from brain.models.estimate.sizes import PriceList, described, deviation
from brain.types.estimate import EstimateQuestion, SizeEstimate
from brain.types.explanation import Alternative, Evidence, Explanation
from brain.typeset import count, duration, number, quantity, ratio

#: Exponent of the price of accelerators against goodput; the same as for a job that runs (models.md
#: section 5).
EXPONENT = 0.5
#: 80 % quantile of the standard normal: the certainty with which a deadline has to be met.
_Z80 = 0.8416


def choose(
    rows: Sequence[SizeEstimate], market: PriceList, question: EstimateQuestion, unit: str
) -> tuple[list[SizeEstimate], Explanation | None]:
    """Return the rows with the size to begin with marked, and with the reason why each other size
    was not chosen; return also the explanation of the choice.

    The chosen size has the largest utility:

        u = ln goodput - 0.5 ln (accelerators * price)

    With the exponent 0.5, twice the accelerators must bring 1.41 times the goodput (throughput,
    reduced by the inefficiency of larger batches if that is known). A size is excluded if it does
    not fit the pool, ends after the deadline (with 80 % certainty) or costs more than the budget.
    Sizes get no credit for the information that a trial would give, because Brain explores once the
    job runs.
    """
    refused = [replace(row, why_not=_refusal(row, question)) for row in rows]
    left = [row for row in refused if not row.why_not]
    if not left:
        return refused, None
    priced = all(market.price(row.accelerator) for row in left)
    best = max(left, key=lambda row: (_utility(row, market, priced), -row.replicas))
    told = [
        replace(row, chosen=True)
        if row is best
        else replace(row, why_not=row.why_not or _why_not(row, best, market, priced))
        for row in refused
    ]
    return told, _explained(best, told, market, unit, priced)


def _refusal(row: SizeEstimate, question: EstimateQuestion) -> str:
    """Return the reason why a row is excluded; empty if it is not."""
    if not row.fits:
        return "this size does not fit the pool, even when the pool is empty"
    if row.why_not or row.undetermined or row.throughput is None:
        return row.why_not or row.undetermined or "the throughput of this size is not known"
    deadline, budget = question.deadline_seconds, question.budget
    if deadline is not None and row.finish_seconds is not None:
        likely = row.finish_seconds.value * math.exp(_Z80 * deviation(row.finish_seconds))
        if likely > deadline:
            return (
                f"likely to end in {duration(likely)}, but the deadline is in {duration(deadline)}"
            )
    if budget is not None and row.cost is not None and row.cost.value > budget:
        return f"a cost of {number(row.cost.value)} is expected, but the budget is {number(budget)}"
    hours, most = row.accelerator_hours, question.accelerator_hours
    if most is not None and hours is not None and hours.value > most:
        return (
            f"{number(hours.value)} accelerator-hours are expected, but the budget is "
            f"{number(most)}"
        )
    return ""


def _utility(row: SizeEstimate, market: PriceList, priced: bool) -> float:
    price = (market.price(row.accelerator) or 1.0) if priced else 1.0
    return math.log(_goodput(row)) - EXPONENT * math.log(max(row.accelerators, 1e-9) * price)


def _goodput(row: SizeEstimate) -> float:
    assert row.throughput is not None, "only rows with a throughput are compared"
    return row.throughput.examples_per_second * row.efficiency


def _why_not(row: SizeEstimate, best: SizeEstimate, market: PriceList, priced: bool) -> str:
    gain, needed = _gain(row, best), _needed(row, best, market, priced)
    if gain >= 1:
        return (
            f"{ratio(gain)} of the throughput, but at least {ratio(needed)} is needed to pay for "
            "the accelerators"
        )
    return (
        f"keeps only {ratio(gain)} of the throughput; the saving is worth it only at "
        f"{ratio(needed)} or more"
    )


def _gain(row: SizeEstimate, best: SizeEstimate) -> float:
    return _goodput(row) / _goodput(best)


def _needed(row: SizeEstimate, best: SizeEstimate, market: PriceList, priced: bool) -> float:
    """Return the factor of throughput that would make a row as good as the best."""
    difference = _utility(best, market, priced) - _utility(row, market, priced)
    return _gain(row, best) * math.exp(difference)


def _explained(
    best: SizeEstimate, rows: Sequence[SizeEstimate], market: PriceList, unit: str, priced: bool
) -> Explanation:
    assert best.throughput is not None, "the chosen row has a throughput"
    others = [row for row in rows if not row.chosen]
    return Explanation(
        code="exploring" if best.exploring else "estimated",
        reason=_reason(best, others, market, unit, priced),
        evidence=tuple(_evidence(best, market)),
        alternatives=tuple(
            Alternative(
                replicas=row.replicas,
                gain=None if row.throughput is None else _gain(row, best) - 1,
                why_not=f"on {row.accelerator}: {row.why_not}",
            )
            for row in others
        ),
        next_step=(
            f"Submit with `replicas.start: {best.replicas}`; Brain measures this size and "
            "continues from there."
            if best.fits_now
            else f"Submit the job; it waits until {described(best)} fit the pool."
        ),
    )


def _reason(
    best: SizeEstimate, others: Sequence[SizeEstimate], market: PriceList, unit: str, priced: bool
) -> str:
    assert best.throughput is not None, "the chosen row has a throughput"
    rate = quantity(best.throughput.examples_per_second, unit)
    kin = [row for row in others if row.accelerator == best.accelerator and row.throughput]
    larger = [row for row in kin if row.replicas > best.replicas]
    smaller = [row for row in kin if row.replicas < best.replicas]
    if larger:
        following = min(larger, key=lambda row: row.replicas)
        gain, needed = _gain(following, best), _needed(following, best, market, priced)
        return (
            f"{rate} with {described(best)}; {following.replicas} replicas would make "
            f"{ratio(gain)} of that, but at least {ratio(needed)} is needed to pay for them"
        )
    if smaller:
        before = max(smaller, key=lambda row: row.replicas)
        gain, needed = 1 / _gain(before, best), 1 / _needed(before, best, market, priced)
        return (
            f"{rate} with {described(best)}, {ratio(gain)} of what {before.replicas} replicas "
            f"would make; at least {ratio(needed)} is needed to pay for them"
        )
    return f"{rate} with {described(best)}, the only size that can be predicted"


def _evidence(best: SizeEstimate, market: PriceList) -> list[Evidence]:
    found = []
    if best.finish_seconds is not None:
        band = best.finish_seconds
        text = f"{duration(band.value)} ({duration(band.low)} to {duration(band.high)})"
        found.append(Evidence(label="training time", value=text))
    if best.accelerator_hours is not None:
        hours = number(best.accelerator_hours.value)
        found.append(Evidence(label="accelerator-hours", value=hours))
    if best.cost is not None:
        found.append(Evidence(label="cost", value=f"{market.currency}{number(best.cost.value)}"))
    if best.nodes > 1:
        found.append(Evidence(label="spread over", value=count(best.nodes, "node")))
    return found
