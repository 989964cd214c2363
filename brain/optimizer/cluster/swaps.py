"""Two jobs change places where both together gain: shapes that found no room, found one so."""

import math
from collections.abc import Sequence

from brain.optimizer.cluster.seating import Seating, rearrange

#: Pairs that are tried in one round, about 40 µs each, and those of one job.
BUDGET, _RIVALS = 1500, 60
#: Times that everybody is asked, and a gain that is one.
_ROUNDS, _LEAST = 3, 1e-12
#: Share of its utility that a job must lack to look for better nodes.
_CONTENT = 0.005


def swap(seating: Seating, budget: int = BUDGET) -> None:
    """Let every job whose shape is not its best one swap with the one that suits both most.

    The worst off first, and again while somebody gains.
    """
    for _ in range(_ROUNDS):
        changed = False
        for job in _unhappy(seating):
            pairs = [[job], *([job, rival] for rival in _rivals(seating, job))]
            if len(pairs) > budget:
                return
            budget -= len(pairs)
            gains = [_swap(seating, pair, math.inf) for pair in pairs]
            best_gain = max(gains)
            if best_gain > _LEAST:
                _swap(seating, pairs[gains.index(best_gain)], _LEAST)
                changed = True
        if not changed:
            return


def _swap(seating: Seating, jobs: Sequence[int], least: float) -> float:
    columns = [int(seating.stock.choice[one]) for one in jobs]
    return rearrange(seating, jobs, columns, least=least)


def _unhappy(seating: Seating) -> list[int]:
    """Jobs in a shape that is not the best of their size."""
    lacks = []
    for job in seating.placed:
        lack = best(seating, job) - seating.worth[job]
        if lack > _CONTENT * seating.worth[job]:
            lacks.append((-lack, job))
    return [job for _, job in sorted(lacks)]


def best(seating: Seating, job: int) -> float:
    """What a job's size would be worth in its best shape."""
    forms = seating.forms(job, int(seating.stock.choice[job]))
    return max(form.utility for form in forms)


def _rivals(seating: Seating, job: int) -> list[int]:
    """Other jobs on the same type, those of about the same size first."""
    kind, size = seating.placed[job].accelerator, seating.size(job)
    others = [
        (abs(seating.size(one) - size), one)
        for one, placement in seating.placed.items()
        if one != job and placement.accelerator == kind
    ]
    return [one for _, one in sorted(others)[:_RIVALS]]
