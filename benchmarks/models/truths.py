"""Jobs whose step times are known, because a formula computes them: eleven kinds of truth.
Input-bound jobs occur twice, with each rule of their batch size.

A truth determines the step time at any size. A walk through sizes yields the points that a service
would have measured, and asks for other sizes of at most twice the largest. Replicas are packed on
nodes. Everything follows from a seed. The formulas differ from the model's: rings by their bytes
and hops, loaders that delay a step gradually, and worlds that repeat within 3 %.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

#: How many sizes a job was measured at when it is asked.
POINTS = (1, 2, 3, 6)
#: Sizes that are asked about, of those within reach.
_SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64)
_LARGEST = 64
#: Deviation of log step time between two worlds of one size, and the share of points that a
#: straggler slows.
_REPEAT, _SPOILED = 0.03, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The values that determine the step time of one job; durations are shares of ``alone``."""

    #: Seconds of a step of one replica with the first local ``batch``.
    alone: float
    batch: float
    #: True if the global batch stays whatever the size, else each replica's does.
    keeps_global: bool
    #: Share of ``alone`` that does not depend on the batch.
    fixed: float
    per_node: int
    #: Exchange within a node and between nodes, and the part of it that is latency.
    near: float
    far: float
    latency: float
    #: Power of the norm by which compute and exchange overlap.
    overlap: float
    #: Loading one batch: of a replica, by how replicas share what feeds them, and how hard the
    #: maximum of loading and the rest is.
    load: float = 0.0
    shared_by: str = "replica"
    hardness: float = 20.0
    #: Growth of the exchange with each replica; nodes beyond which it is slower, and by how much.
    linear: bool = False
    rack: int = 1_000
    beyond: float = 1.0
    #: Factor on the exchange at sizes that are no power of two.
    odd: float = 1.0
    #: Deviation of the exchange by what neighbours send.
    neighbours: float = 0.0
    #: Local batch from which computing is slower, and by how much.
    cliff: float = np.inf
    slower: float = 1.0
    #: Exchange of activations per example, that nothing hides.
    experts: float = 0.0
    #: Growth of the logarithm of step time from world to world.
    drift: float = 0.0
    #: Deviation of a replica's time, of which the slowest counts.
    stragglers: float = 0.0

    def local(self, replicas: int) -> float:
        """Return the examples of a step that one replica processes."""
        return self.batch / replicas if self.keeps_global else self.batch

    def compute(self, replicas: int) -> float:
        """Return the seconds for which a replica computes."""
        batch = self.local(replicas)
        level = self.fixed + (1 - self.fixed) * batch / self.batch
        slower = self.slower if batch > self.cliff else 1.0
        slowest = 1 + self.stragglers * np.sqrt(2 * np.log(replicas))
        return float(self.alone * level * slower * slowest)

    def rest(self, replicas: int, crowd: float) -> float:
        """Return the seconds of a step that never waits for data; ``crowd`` is the delay that
        neighbours cause.
        """
        if replicas == 1:
            return self.compute(1)
        nodes = -(-replicas // self.per_node)
        base = self.far if nodes > 1 else self.near
        bytes, hops = 2 * (replicas - 1) / replicas, np.log2(replicas)
        exchange = base * ((1 - self.latency) * bytes + self.latency * hops)
        if self.linear:
            exchange = base * (replicas - 1) / 2
        exchange *= crowd * (self.beyond if nodes > self.rack else 1.0)
        exchange *= self.odd if replicas & (replicas - 1) else 1.0
        activations = self.experts * self.local(replicas) / self.batch * bytes / 2
        activations *= self.far / self.near if nodes > 1 else 1.0
        pair = np.array([self.compute(replicas), self.alone * exchange])
        return float((pair**self.overlap).sum() ** (1 / self.overlap) + self.alone * activations)

    def loading(self, replicas: int) -> float:
        """Return the seconds until the data source has a batch for every replica."""
        nodes = -(-replicas // self.per_node)
        sharers = {"replica": 1.0, "node": replicas / nodes, "storage": float(replicas)}
        share = self.local(replicas) / self.batch
        return self.alone * self.load * share * sharers[self.shared_by]

    def step(self, replicas: int, chance: np.random.Generator) -> tuple[float, float]:
        """Return the seconds of a step in a world of its own, and those of them for which it waits
        for data.
        """
        crowd = float(np.exp(abs(chance.normal(0, self.neighbours)))) if self.neighbours else 1.0
        rest, loading = self.rest(replicas, crowd), self.loading(replicas)
        pair = np.array([rest, loading])
        whole = float(
            pair.max() * ((pair / pair.max()) ** self.hardness).sum() ** (1 / self.hardness)
        )
        handed = chance.uniform(0.001, 0.01) * rest
        return whole + handed, whole - rest + handed


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The points of a walk, and the sizes that are asked for after each number of points."""

    kind: str
    #: Fields of ``Point``, oldest first; ``data_wait_seconds`` beside them.
    points: Sequence[Mapping[str, Any]]
    #: Examples a step that the owner declared.
    global_batch: float | None
    #: By number of points: (replicas, nodes) and the examples per second that they do.
    asked: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    truths: Mapping[int, Sequence[float]] = field(default_factory=dict)


def problems(seed: int, each: int) -> list[Problem]:
    """Return ``each`` problems of every kind."""
    return [
        problem(kind, np.random.default_rng([seed, zlib.crc32(kind.encode()), number]))
        for kind in KINDS
        for number in range(each)
    ]


def problem(kind: str, chance: np.random.Generator) -> Problem:
    """Draw a truth of a kind, walk through its sizes, and return the problem."""
    truth = KINDS[kind](plain_ring(chance), chance)
    told = bool(chance.random() < 0.5)
    sizes = walk(chance)
    points = [_point(truth, epoch, size, told, chance) for epoch, size in enumerate(sizes)]
    asked, truths = {}, {}
    for number in POINTS:
        reach, seen = 2 * max(sizes[:number]), set(sizes[:number])
        open = [size for size in _SIZES if size <= reach and size not in seen]
        asked[number] = [(size, -(-size // truth.per_node)) for size in open]
        truths[number] = [_rate(truth, number, size, chance) for size in open]
    whole = truth.batch if truth.keeps_global else None
    return Problem(kind=kind, points=points, global_batch=whole, asked=asked, truths=truths)


def walk(chance: np.random.Generator) -> list[int]:
    """Return different sizes in the order in which a job that mostly grows has them, each within
    reach at its turn.
    """
    found = [int(chance.choice([1, 2, 4], p=[0.6, 0.25, 0.15]))]
    while len(found) < max(POINTS):
        most, last = min(2 * max(found), _LARGEST), found[-1]
        moves = (2 * last, last + 1, max(1, last // 2), int(chance.integers(1, most + 1)))
        size = int(chance.choice(moves, p=[0.5, 0.2, 0.15, 0.15]))
        if size <= most and size not in found:
            found.append(size)
    return found


def _point(
    truth: Truth, epoch: int, size: int, told: bool, chance: np.random.Generator
) -> Mapping[str, Any]:
    """Return the point that a service measures of one world."""
    error = float(chance.uniform(0.002, 0.02))
    step, wait = truth.step(size, chance)
    aged = float(np.exp(truth.drift * epoch + chance.normal(0, np.hypot(_REPEAT, error))))
    spoiled = 1.5 if truth.stragglers and chance.random() < _SPOILED else 1.0
    step, wait = step * aged * spoiled, wait * aged * spoiled
    # Hooks see when a replica's own gradients are done: that includes its wait for data.
    computes = min(
        step, (truth.compute(size) + wait) * aged * float(np.exp(chance.normal(0, 0.03)))
    )
    return {
        "epoch": epoch,
        "replicas": size,
        "processes": size,
        "nodes": -(-size // truth.per_node),
        "accelerator": "A100",
        "examples_per_step": truth.local(size) * size,
        "step_seconds": step,
        "relative_error": error,
        "steps": 200,
        "last_step": 200,
        "compute_seconds": min(step, computes) if told and size > 1 else None,
        "data_wait_seconds": wait,
    }


def _rate(truth: Truth, number: int, size: int, chance: np.random.Generator) -> float:
    step, _ = truth.step(size, chance)
    aged = float(np.exp(truth.drift * number + chance.normal(0, _REPEAT)))
    return truth.local(size) * size / (step * aged)


def _between(chance: np.random.Generator, low: float, high: float) -> float:
    """Return a random value between two bounds, uniform in logarithms."""
    return float(np.exp(chance.uniform(np.log(low), np.log(high))))


def plain_ring(chance: np.random.Generator) -> Truth:
    """Return a plain ring, from which every other kind differs in one property."""
    far = _between(chance, 0.03, 0.6)
    return Truth(
        alone=_between(chance, 0.03, 3.0),
        batch=float(2 ** chance.integers(5, 10)),
        keeps_global=bool(chance.random() < 0.5),
        fixed=float(chance.uniform(0.02, 0.3)),
        per_node=int(chance.choice([4, 8])),
        near=far * _between(chance, 0.1, 0.6),
        far=far,
        latency=float(chance.uniform(0.0, 0.3)),
        overlap=float(chance.uniform(1.0, 5.0)),
    )


def _loads(truth: Truth, chance: np.random.Generator, *, keeps_global: bool) -> Truth:
    """Set loaders of each replica, or of each node, that are about as fast as its steps."""
    return replace(
        truth,
        keeps_global=keeps_global,
        load=_between(chance, 0.5, 2.5),
        shared_by=str(chance.choice(["replica", "node"])),
        hardness=float(chance.uniform(8, 50)),
    )


def _storage(truth: Truth, chance: np.random.Generator) -> Truth:
    """Set one storage for all replicas: from some size on, or from the first, more replicas bring
    nothing.
    """
    load, hardness = _between(chance, 0.1, 2.0), float(chance.uniform(8, 50))
    return replace(truth, load=load, shared_by="storage", hardness=hardness)


def _cliff(truth: Truth, chance: np.random.Generator) -> Truth:
    """Set a first batch that is too large for one replica, so that few replicas are slower than
    their share.
    """
    cliff = truth.batch / float(2 ** chance.integers(0, 4)) * 0.99
    return replace(truth, keeps_global=True, cliff=cliff, slower=float(chance.uniform(1.2, 2.5)))


def _linear(truth: Truth, chance: np.random.Generator) -> Truth:
    """Set an exchange in which every replica sends to one, so that its time grows with each
    replica.
    """
    far = _between(chance, 0.01, 0.15)
    return replace(truth, linear=True, far=far, near=far * _between(chance, 0.1, 0.6))


#: The kinds by name: each changes one thing of a plain ring.
KINDS: Mapping[str, Any] = {
    "ring": lambda truth, chance: truth,
    "input-bound, local batch": lambda t, chance: _loads(t, chance, keeps_global=False),
    "input-bound, global batch": lambda t, chance: _loads(t, chance, keeps_global=True),
    "shared storage": _storage,
    "rack edge": lambda truth, chance: replace(
        truth, rack=int(chance.integers(1, 4)), beyond=float(chance.uniform(1.5, 4.0))
    ),
    "odd sizes": lambda truth, chance: replace(truth, odd=float(chance.uniform(1.2, 2.5))),
    "contention": lambda truth, chance: replace(truth, neighbours=float(chance.uniform(0.2, 0.8))),
    "memory cliff": _cliff,
    "MoE-like": lambda truth, chance: replace(truth, experts=_between(chance, 0.05, 0.4)),
    "drift": lambda truth, chance: replace(truth, drift=float(chance.uniform(-0.1, 0.1))),
    "stragglers": lambda t, chance: replace(t, stragglers=float(chance.uniform(0.02, 0.12))),
    "linear": _linear,
}
