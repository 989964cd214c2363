"""Sia: chooses one configuration per job by integer programming in every round.

    minimise  sum over jobs of (goodput / least goodput of the job * r)^p     with p = -0.5,
    r = (age - restarts * cost) / (age + cost) but for the current configuration,
    plus 1.1 for each job that gets nothing

(Jayaram Subramanya et al., SOSP 2023, section 3.4, with the constants of its artifact.) A job's
configurations are powers of two within a node and whole nodes beyond; it may take up to twice the
replicas that it has run with. Goodput on a kind that it never ran on is that of the first one that
it did, times the ratio of the two kinds' measured throughput on one GPU.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from benchmarks.jct.applications import Application
from benchmarks.jct.sia.cluster import Kind
from benchmarks.jct.sia.jobs import Grant, Job
from benchmarks.jct.sia.model import best
from benchmarks.jct.sia.run import Division

Floats = NDArray[np.float64]

POWER = -0.5
#: For each job without a grant; more than the 1 that the least configuration costs.
LEFT_OUT = 1.1
#: Gain of what is not to be chosen, and the cost beyond which all is the same.
_NOTHING, _DEAREST = 1e-4, 3000.0
_GAP = 1e-4
#: What the policy believes a restart to cost; the artifact's own, by application.
PENALTY_SECONDS = {
    "bert": 120.0,
    "cifar10": 30.0,
    "deepspeech2": 25.0,
    "imagenet": 250.0,
    "yolov3": 45.0,
}
_PENALTY_SECONDS = 30.0


def sizes(kind: Kind) -> list[int]:
    """Return the numbers of GPUs of the configurations on a kind, in ascending order.

    >>> sizes(Kind(name="rtx", nodes=3, gpus_per_node=8))
    [1, 2, 4, 8, 16, 24]
    """
    per = kind.gpus_per_node
    within = [1 << power for power in range(per.bit_length()) if 1 << power <= per]
    return within + [per * nodes for nodes in range(2, kind.nodes + 1)]


class Sia:
    """The policy of Sia."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def admit(self, job: Job) -> None:
        """Do nothing, because Sia's agents choose batch sizes themselves."""

    def decide(
        self, now: float, jobs: Sequence[Job], kinds: Sequence[Kind], current: Division
    ) -> Division:
        """See ``Policy``."""
        menu = [(kind, gpus) for kind in kinds for gpus in sizes(kind)]
        worth = np.array([self._row(job, kinds) for job in jobs])
        pinned = np.full(len(jobs), -1)
        for index, job in enumerate(jobs):
            last = self._last.get(job.name)
            if last is not None:
                kept = worth[index, last]
                worth[index] *= patience(job, now)
                worth[index, last] = kept
                if job.restoring > 0:
                    pinned[index] = last
        with np.errstate(divide="ignore"):
            cost = np.minimum(np.round(worth**POWER, 2), _DEAREST)
        chosen = solve(cost, pinned, menu, kinds)
        self._last = {
            job.name: int(index) for job, index in zip(jobs, chosen, strict=True) if index >= 0
        }
        asked = {name: menu[index] for name, index in self._last.items()}
        return placed(asked, kinds)

    def _row(self, job: Job, kinds: Sequence[Kind]) -> Floats:
        """Return the goodput of every configuration divided by the job's least; almost 0 if the
        configuration is forbidden.
        """
        if not job.profiles:
            all_sizes = np.concatenate([sizes(kind) for kind in kinds])
            return np.where(all_sizes == 1, 1.0, _NOTHING)
        found = []
        for kind in kinds:
            gpus = np.array(sizes(kind))
            goodput = np.full(len(gpus), _NOTHING)
            allowed = gpus <= job.most_replicas
            goodput[allowed] = believed(job, kind, gpus[allowed], kinds)
            found.append(goodput)
        row = np.concatenate(found)
        row = row / row[row > _NOTHING].min()
        least: Floats = np.maximum(row, _NOTHING)
        return least


def believed(job: Job, kind: Kind, gpus: NDArray[np.int64], kinds: Sequence[Kind]) -> Floats:
    """Return the goodput on a kind by the job's own model for it; else by its first model for
    another kind, scaled.
    """
    assert job.gradients is not None
    source, ratio = kind, 1.0
    if kind.name not in job.profiles:
        source = next(other for other in kinds if other.name in job.profiles)
        ratio = alone(job.tables[kind.name]) / alone(job.tables[source.name])
    nodes = np.ceil(gpus / source.gpus_per_node)
    model, limits = job.model(source.name), job.limits(source.name)
    return ratio * best(model, job.gradients, nodes, gpus, limits)[0]


def alone(table: Application) -> float:
    """Return the examples per second of one GPU with the largest batch size, which are measured at
    submission.
    """
    batches, times = table.placements[(1,)]
    return float(batches.max() / times[:, 0].max())


def patience(job: Job, now: float) -> float:
    """Return the factor by which the goodput of another configuration is multiplied."""
    penalty = PENALTY_SECONDS.get(job.application, _PENALTY_SECONDS)
    age = now - job.submitted
    if age < penalty:
        return 1.0
    return max(age - (job.restarts or 0) * penalty, 0.0) / (age + penalty)


def solve(
    cost: Floats,
    pinned: NDArray[np.int64],
    menu: Sequence[tuple[Kind, int]],
    kinds: Sequence[Kind],
) -> NDArray[np.int64]:
    """Return the index of each job's configuration; -1 is none."""
    jobs, configurations = cost.shape
    owner, which = np.divmod(np.arange(cost.size), configurations)
    gpus = np.array([gpus for _, gpus in menu])
    place = np.array([kinds.index(kind) for kind, _ in menu])
    taken = coo_array((gpus[which], (place[which], np.arange(cost.size))))
    once = coo_array((np.ones(cost.size), (owner, np.arange(cost.size))))
    lower = np.zeros(cost.shape)
    held = pinned >= 0
    lower[held, pinned[held]] = 1
    found = milp(
        (cost - LEFT_OUT).ravel(),
        integrality=np.ones(cost.size, dtype=np.int64),
        bounds=Bounds(lower.ravel(), 1),
        constraints=[
            LinearConstraint(taken.tocsr(), ub=np.array([kind.gpus for kind in kinds])),
            LinearConstraint(once.tocsr(), ub=np.ones(jobs)),
        ],
        options={"mip_rel_gap": _GAP},
    )
    if found.x is None:
        raise ValueError(f"no division found: {found.message}")
    taken_up = np.round(found.x).reshape(cost.shape) > 0
    return np.where(taken_up.any(axis=1), taken_up.argmax(axis=1), -1)


def placed(asked: Mapping[str, tuple[Kind, int]], kinds: Sequence[Kind]) -> Division:
    """Return nodes for every job, the largest job first, each job on as few nodes as possible.

    Sizes are powers of two or whole nodes, so this order always finds room. A move between nodes of
    one kind is free if the shape stays the same.
    """
    found = {}
    for kind in kinds:
        room = [kind.gpus_per_node] * kind.nodes
        own = {name: gpus for name, (where, gpus) in asked.items() if where == kind}
        for name, gpus in sorted(own.items(), key=lambda one: -one[1]):
            shape = kind.packed(gpus)
            nodes = []
            for part in shape:
                node = next(n for n, free in enumerate(room) if free >= part)
                room[node] -= part
                nodes.append(node)
            found[name] = Grant(kind=kind.name, shape=shape, nodes=tuple(nodes))
    return found
