"""In which order worlds change: nobody moves in before somebody has moved out."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence

from brain.optimizer.cluster.views import Grant, JobView, Move, NodeView, Placement


def ordered(
    jobs: Sequence[JobView], grants: Mapping[str, Grant], nodes: Iterable[NodeView]
) -> tuple[Move, ...]:
    """The changes of a round, each after those whose accelerators it needs.

    Where jobs wait for each other in a circle, the one of least worth lets go first.
    """
    each = {job.key: job.gpus_per_replica for job in jobs}
    free = {node.name: node.capacity for node in nodes}
    for job in jobs:
        for name, size in _uses(job.current, job.gpus_per_replica).items():
            if name in free:
                free[name] -= size
    changing = [job.key for job in jobs if grants[job.key].changes]
    leaving: dict[str, list[tuple[str, int]]] = defaultdict(list)
    more: dict[str, Counter[str]] = {}
    for key in changing:
        before, after = (
            _uses(place, each[key]) for place in (grants[key].before, grants[key].placement)
        )
        more[key] = after - before
        for name, size in (before - after).items():
            leaving[name].append((key, size))
    waits = _waits(changing, more, leaving, free)
    return tuple(_in_turn(waits, grants))


def _uses(placement: Placement | None, each: int) -> Counter[str]:
    """Accelerators by node."""
    found: Counter[str] = Counter()
    for name in placement.nodes if placement else ():
        found[name] += each
    return found


def _waits(
    changing: Sequence[str],
    more: Mapping[str, Counter[str]],
    leaving: Mapping[str, list[tuple[str, int]]],
    free: dict[str, int],
) -> dict[str, tuple[str, ...]]:
    """Whom each job has to wait for: what is free now goes to the first ones."""
    left = {name: deque(parts) for name, parts in leaving.items()}
    waits = {}
    for key in changing:
        after: dict[str, None] = {}
        for name, size in more[key].items():
            have = free.get(name, 0)
            queue = left.get(name, deque())
            while have < size and queue:
                other, freed = queue.popleft()
                have += freed
                after[other] = None
            free[name] = have - size
        waits[key] = tuple(other for other in after if other != key)
    return waits


def _in_turn(waits: Mapping[str, tuple[str, ...]], grants: Mapping[str, Grant]) -> Iterable[Move]:
    """Moves in an order in which every one finds those done that it waits for."""
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
    """``key`` has let go."""
    for other in followers.get(key, ()):
        missing[other].discard(key)
        if not missing[other]:
            ready.append(other)
