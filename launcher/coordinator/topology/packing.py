"""Chooses agents of different sizes that together have the requested number of processes."""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd, inf

from brain.types.world import Member
from launcher.coordinator.topology.order import in_order
from launcher.coordinator.topology.spares import keep
from launcher.values.observation import AgentObserved, Shape


@dataclass(frozen=True, slots=True)
class PackingKind:
    """Agents with the same number of processes that all were in the last world, or that all were
    not.
    """

    survivor: bool
    processes: int


def pack(
    previous: Sequence[Member],
    agents: Sequence[AgentObserved],
    goal: int,
    unit: int,
    minimum: int,
    shape: Shape,
) -> list[AgentObserved]:
    """Return agents with ``goal`` processes in total. If no choice has this sum, take the nearest
    sum above ``goal`` up to ``shape.most``, else the nearest sum below ``goal`` down to
    ``minimum``. If there is no such sum, return an empty list.

    Of several choices, prefer the one with the most processes from the last world, then the one
    with the fewest agents; of similar agents, prefer those that fill switches. Sums are multiples
    of ``unit``.
    """
    known = {member.replica for member in previous}
    kinds: dict[PackingKind, list[AgentObserved]] = defaultdict(list)
    for agent in in_order(agents):
        kinds[PackingKind(agent.replica in known, agent.processes)].append(agent)
    counts = _counts(
        {kind: len(group) for kind, group in kinds.items()}, goal, unit, minimum, shape.most
    )
    picked: list[AgentObserved] = []
    for kind in sorted(counts, key=lambda kind: (not kind.survivor, -kind.processes)):
        last = previous if kind.survivor else ()
        picked += keep(kinds[kind], picked, counts[kind], 1, last)
    return picked


def _counts(
    available: Mapping[PackingKind, int], goal: int, unit: int, minimum: int, most: int
) -> dict[PackingKind, int]:
    """Return the number of agents of each kind; empty if no sum will do.

    This is a bounded knapsack over sums, in steps of the sizes' greatest common divisor.
    """
    step = gcd(*(kind.processes for kind in available)) if available else 1
    limit = min(max(goal, most), sum(k.processes * n for k, n in available.items())) // step
    # Cheap is what takes few processes of newcomers, then few agents.
    agent_costs = 1.0
    newcomer_costs = float(sum(available.values()) + 1)
    costs: list[float] = [0.0] + [inf] * limit
    taken: list[tuple[PackingKind, list[int]]] = []
    for kind, count in available.items():
        price = agent_costs + (0 if kind.survivor else kind.processes * newcomer_costs)
        costs, chosen = _with(costs, kind.processes // step, count, price)
        taken.append((kind, chosen))
    feasible = [s for s in range(1, limit + 1) if costs[s] < inf and s * step % unit == 0]
    above = [s for s in feasible if s * step >= goal]
    below = [s for s in feasible if max(minimum, 1) <= s * step < goal]
    at = min(above) if above else max(below, default=0)
    found: dict[PackingKind, int] = {}
    for kind, chosen in reversed(taken):
        found[kind] = chosen[at]
        at -= chosen[at] * kind.processes // step
    return {kind: count for kind, count in found.items() if count}


def _with(
    costs: Sequence[float], size: int, count: int, price: float
) -> tuple[list[float], list[int]]:
    """Return the cheapest way to each sum with up to ``count`` more of ``size``, and how many.

    A window of ``count`` slides over each residue, so the time is linear whatever the count.
    """
    best, chosen = list(costs), [0] * len(costs)
    for residue in range(min(size, len(costs))):
        window: deque[tuple[float, int]] = deque()
        for at, total in enumerate(range(residue, len(costs), size)):
            worth = costs[total] - at * price
            while window and window[-1][0] > worth:
                window.pop()
            window.append((worth, at))
            if window[0][1] < at - count:
                window.popleft()
            best[total] = window[0][0] + at * price
            chosen[total] = at - window[0][1]
    return best, chosen
