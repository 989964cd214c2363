"""The result of a round: each job's grant, its next best configuration, and the order of the
changes.

If a change takes accelerators of another job, it follows the change that frees them.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from brain.pool.allocator.columns import Ints
from brain.pool.allocator.seating import Seating
from brain.pool.allocator.views import (
    Floats,
    Grant,
    JobPlacement,
    Move,
    Option,
    PoolJob,
    PoolNode,
    RoundEffect,
)

_SLACK = 1e-9


def grants(seating: Seating, refused: Mapping[int, str]) -> dict[str, Grant]:
    """Return a grant for every job, in the order of the jobs."""
    best, gain, cost = runners_up(seating)
    rivals = _Rivals(seating)
    columns = seating.problem.columns
    made = {}
    for index, job in enumerate(seating.jobs):
        option, whom = None, None
        if best[index] >= 0:
            kind = int(columns.accelerator[index, best[index]])
            option = Option(
                accelerator=seating.types[kind],
                replicas=int(columns.replicas[index, best[index]]),
                gain=float(gain[index]),
                cost=float(cost[index]),
            )
            whom = rivals.of(index, int(best[index]), option.gain)
        stays = job.pinned or index in refused
        placement = job.current if stays else seating.placed.get(index)
        made[job.key] = Grant(
            key=job.key,
            outcome=RoundEffect.REFUSED if index in refused else outcome(job.current, placement),
            placement=placement,
            before=job.current,
            utility=seating.worth.get(index, 0.0),
            next_best=option,
            lost_to=whom,
            because=_because(seating, job, index, refused),
        )
    return made


def outcome(before: JobPlacement | None, after: JobPlacement | None) -> RoundEffect:
    """Return the outcome of a round for a job, from the job's placements before and after."""
    if after is None:
        return RoundEffect.WAITS if before is None else RoundEffect.STOPS
    if before is None:
        return RoundEffect.STARTS
    if before == after:
        return RoundEffect.KEEPS
    if before.replicas != after.replicas:
        return RoundEffect.GROWS if after.replicas > before.replicas else RoundEffect.SHRINKS
    return RoundEffect.MOVES


def runners_up(seating: Seating) -> tuple[Ints, Floats, Floats]:
    """Return each job's next best configuration at the prices of the round (-1: none), the utility
    that it adds to the grant's utility, and the cost that it adds to the grant's cost.
    """
    problem, market, choice = seating.problem, seating.market, seating.stock.choice
    columns, jobs = problem.columns, np.arange(len(choice))
    cost = market.price(problem) * columns.size
    holds = choice >= 0
    same = columns.accelerator == columns.accelerator[jobs, choice][:, None]
    same &= columns.replicas == columns.replicas[jobs, choice][:, None]
    left = np.where(same & holds[:, None], -np.inf, columns.utility - cost)
    best = left.argmax(axis=1)
    known = np.isfinite(left[jobs, best])
    had, paid = (np.where(holds, table[jobs, choice], 0.0) for table in (columns.utility, cost))
    gain = np.where(known, columns.utility[jobs, best] - had, 0.0)
    return np.where(known, best, -1), gain, cost[jobs, best] - paid


class _Rivals:
    """Holders of accelerators by type, sorted by the utility of the last ones that they got."""

    def __init__(self, seating: Seating) -> None:
        self.seating = seating
        columns, choice = seating.problem.columns, seating.stock.choice
        self.had = np.where(choice >= 0, columns.size[np.arange(len(choice)), choice], 0.0)
        holders = np.array(sorted(seating.placed), dtype=np.int64)
        kinds = columns.accelerator[holders, choice[holders]]
        self.values = margins(seating, holders)
        self.kinds: list[tuple[Ints, Floats]] = []
        for kind in range(len(seating.types)):
            mine = np.flatnonzero(kinds == kind)
            order = mine[np.argsort(self.values[mine], kind="stable")]
            self.kinds.append((holders[order], self.values[order]))

    def of(self, job: int, column: int, gain: float) -> str | None:
        """Return a job that holds accelerators which ``job`` would need for ``column``.

        Return None if enough accelerators are free, or if the column gains nothing.
        """
        seating = self.seating
        columns, choice = seating.problem.columns, int(seating.stock.choice[job])
        kind = int(columns.accelerator[job, column])
        same = choice >= 0 and columns.accelerator[job, choice] == kind
        extra = float(columns.size[job, column]) - (float(self.had[job]) if same else 0.0)
        if gain <= _SLACK or extra <= float(seating.stock.free[kind]):
            return None
        holders, values = self.kinds[kind]
        at = int(np.searchsorted(values, gain / extra))
        for index in [*range(at, min(at + 2, len(holders))), *range(min(at, 2))]:
            if holders[index] != job:
                return seating.jobs[int(holders[index])].key
        return None


def margins(seating: Seating, holders: Ints) -> Floats:
    """Return, for each of ``holders``, the least utility per accelerator that it loses if it
    releases accelerators.
    """
    columns, choice = seating.problem.columns, seating.stock.choice[holders]
    rows = np.arange(len(holders))
    size, utility = columns.size[holders], columns.utility[holders]
    kind = columns.accelerator[holders]
    fewer = size[rows, choice][:, None] - size
    smaller = (kind == kind[rows, choice][:, None]) & (fewer > 0)
    lost = utility[rows, choice][:, None] - utility
    rate = np.where(smaller, lost / np.where(smaller, fewer, 1), np.inf)
    whole = utility[rows, choice] / size[rows, choice]
    least: Floats = np.minimum(rate.min(axis=1, initial=np.inf), whole)
    return least


def _because(seating: Seating, job: PoolJob, index: int, refused: Mapping[int, str]) -> str:
    if index in refused:
        return refused[index]
    if job.pinned:
        return "the job keeps its size, because it cannot change now"
    return seating.squeezed.get(index, "")


def ordered(
    jobs: Sequence[PoolJob], grants: Mapping[str, Grant], nodes: Iterable[PoolNode]
) -> tuple[Move, ...]:
    """Return the changes of a round in order: each change follows those that free its accelerators.

    If jobs wait for each other in a circle, the job with the least utility frees its accelerators
    first.
    """
    free = {node.name: node.capacity for node in nodes}
    leaving: dict[str, list[tuple[str, int]]] = defaultdict(list)
    more: dict[str, Mapping[str, int]] = {}
    for job in jobs:
        grant, each = grants[job.key], job.gpus_per_replica
        before = _uses(grant.before, each)
        for name, size in before.items():
            if name in free:
                free[name] -= size
        if grant.changes:
            after = _uses(grant.placement, each)
            more[job.key] = after if not before else after - before
            for name, size in (before - after if before else before).items():
                leaving[name].append((job.key, size))
    waits = _waits(list(more), more, leaving, free)
    return tuple(_in_turn(waits, grants))


def _uses(placement: JobPlacement | None, each: int) -> Counter[str]:
    """Return the accelerators by node."""
    found: Counter[str] = Counter()
    for name in placement.nodes if placement else ():
        found[name] += each
    return found


def _waits(
    changing: Sequence[str],
    more: Mapping[str, Mapping[str, int]],
    leaving: Mapping[str, list[tuple[str, int]]],
    free: dict[str, int],
) -> dict[str, tuple[str, ...]]:
    """Return the jobs for which each job waits; free accelerators go to the first jobs."""
    left = {name: deque(parts) for name, parts in leaving.items()}
    waits = {}
    for key in changing:
        after: dict[str, None] = {}
        for name, size in more[key].items():
            have = free.get(name, 0)
            queue = left.get(name)
            while have < size and queue:
                other, freed = queue.popleft()
                have += freed
                after[other] = None
            free[name] = have - size
        waits[key] = tuple(other for other in after if other != key)
    return waits


def _in_turn(waits: Mapping[str, tuple[str, ...]], grants: Mapping[str, Grant]) -> Iterable[Move]:
    """Return moves in an order in which each comes after the moves that it waits for."""
    missing = {key: set(after) for key, after in waits.items()}
    followers: dict[str, list[str]] = defaultdict(list)
    for key, after in waits.items():
        for other in after:
            followers[other].append(key)
    ready = deque(key for key in waits if not missing[key])
    gone: set[str] = set()
    done: set[str] = set()
    while len(done) < len(waits):
        if not ready:
            circle = [key for key in waits if key not in done and key not in gone]
            first = min(circle, key=lambda key: grants[key].utility)
            gone.add(first)
            _tell(first, followers, missing, ready)
            continue
        key = ready.popleft()
        done.add(key)
        yield Move(
            key=key,
            placement=grants[key].placement,
            after=waits[key],
            lets_go_first=key in gone,
        )
        if key not in gone:
            _tell(key, followers, missing, ready)


def _tell(
    key: str,
    followers: Mapping[str, list[str]],
    missing: Mapping[str, set[str]],
    ready: deque[str],
) -> None:
    """Mark the change of ``key`` as ordered: each follower waits for one change less."""
    for other in followers.get(key, ()):
        missing[other].discard(key)
        if not missing[other]:
            ready.append(other)
