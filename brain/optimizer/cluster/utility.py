"""What a configuration is worth to the pool: one small function, to be exchanged in benchmarks.

A utility takes ``Terms`` (a row per job, a column per configuration) and the ``Weights``, and
returns an array of the same shape, at least 0 where it is meant to be chosen at all. Nothing is
worth 0: a job gets a configuration if it is worth its accelerators' price.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from brain.optimizer.cluster.views import Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Terms:
    """What utilities are made of; J jobs with up to C configurations each."""

    #: Shape (J, C): goodput over that of the smallest configuration on the slowest type.
    speedup: Floats
    #: Shape (J, C): standard deviation of its logarithm.
    deviation: Floats
    #: Shape (J, C).
    replicas: Floats
    #: Shape (J, C): where the job is now; the only column that needs no restart.
    current: NDArray[np.bool_]
    #: Shape (J, 1) from here on. Whether the job runs, wherever: ``current`` is empty where it is
    #: reckoned what a move would cost.
    runs: NDArray[np.bool_]
    #: See ``JobView``; what is not known is NaN.
    attained_seconds: Floats
    remaining_seconds: Floats
    waited_seconds: Floats
    age_seconds: Floats
    restart_seconds: Floats
    #: ``priority_base`` to the power of the class.
    priority: Floats


#: Worth of every configuration, shape (J, C).
Utility = Callable[["Terms", "Weights"], Floats]


def logarithmic(terms: Terms, weights: "Weights") -> Floats:
    """Proportional fairness: w (1 + ln s) keep              (models.md section 4.2)

        w = priority · (offset + attained)^-exponent · (1 + waited / 30 min, at most 4)
        keep = 1 - restart / clip(5 restart, shortest, longest) but for the current one

    The 1 makes admission worth more than any doubling.
    """
    weight = (weights.offset_seconds + terms.attained_seconds) ** -weights.exponent
    patience = np.minimum(1 + terms.waited_seconds / 1800, 4)
    ahead = np.clip(5 * terms.restart_seconds, weights.shortest_seconds, weights.longest_seconds)
    gain = 1 + np.log(terms.speedup) - weights.caution * terms.deviation
    return terms.priority * weight * patience * gain * _keep(terms, ahead)


def marginal(terms: Terms, weights: "Weights") -> Floats:
    """Goodput where it shortens most: w s^power keep        (cluster-benchmark.md section 5)

        w = priority · x^-exponent
        x = remaining seconds at one replica, offset + attained where nobody knows
        keep = 1 - restart / clip(x / s + restart, shortest, longest) but for the current one

    A job about to end is not disturbed, a long one has little to lose, and one that has just begun
    is not taken to end soon because nobody knows. The power is between throughput (1) and
    proportional fairness (0): with 1 long jobs are starved by short ones.
    """
    return _urgency(terms, weights) * _speed(terms, weights) ** weights.power


def diminishing(terms: Terms, weights: "Weights") -> Floats:
    """Goodput that is worth the less the more of it there is: w ln(1 + s / knee) keep

        w, keep as in ``marginal``

    Almost linear below ``weights.knee``, logarithmic far above it: a crowded pool serves short
    jobs first, as ``marginal`` with a power near 1 does, and one with room for large sizes
    shares it, as a power of 1/2 does.
    """
    return _urgency(terms, weights) * np.log1p(_speed(terms, weights) / weights.knee)


def _urgency(terms: Terms, weights: "Weights") -> Floats:
    """w keep: what a job's speed counts for in each configuration."""
    nobody_knows = np.isnan(terms.remaining_seconds)
    unknown = weights.offset_seconds + terms.attained_seconds
    left = np.maximum(np.where(nobody_knows, unknown, terms.remaining_seconds), 1.0)
    speed = _speed(terms, weights)
    ahead = np.where(nobody_knows, np.inf, left / speed + terms.restart_seconds)
    in_restarts = weights.longest_restarts * terms.restart_seconds
    longest = np.maximum(weights.longest_seconds, in_restarts)
    ahead = np.clip(ahead, weights.shortest_seconds, longest)
    exponent = np.where(nobody_knows, weights.unknown_exponent, weights.exponent)
    # After an hour both count the same.
    weight = np.minimum(left, weights.most_seconds) ** -exponent * 3600 ** (
        exponent - weights.exponent
    )
    return terms.priority * weight * _keep(terms, ahead)


def _speed(terms: Terms, weights: "Weights") -> Floats:
    found: Floats = terms.speedup * np.exp(-weights.caution * terms.deviation)
    return found


def _keep(terms: Terms, ahead_seconds: Floats) -> Floats:
    """Share of the time ahead that a restart leaves for work."""
    moved = np.maximum(0.0, 1 - terms.restart_seconds / ahead_seconds)
    return np.where(terms.current, 1.0, moved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Every constant of a division."""

    utility: Utility = field(default=marginal)
    #: How much less a job counts per second that it has to go (or has had): 0 is throughput
    #: alone, 1 shortest first. 0.2 to 0.5 are within 2 % on Pollux's workload 6.
    exponent: float = 0.3
    #: The same where nobody knows how far a job has to go: what it has had says less. With 0.3
    #: the 99th percentile on Sia's workloads was 2 % above Sia's.
    unknown_exponent: float = 0.2
    #: Of the speed-up in a job's worth; 0.3 to 0.7 are within 1 % on Pollux's workloads, with a
    #: p99 below that of 1.
    power: float = 0.5
    #: Speed-up at which ``diminishing`` turns from linear to logarithmic. 8 holds at loads 1.0
    #: and 2.0 of Pollux's workloads, where no one power does.
    knee: float = 8.0
    #: Added to attained work, so that a new job is not worth everything.
    offset_seconds: float = 300.0
    #: Work beyond which a job counts no less: without it the longest jobs are starved.
    most_seconds: float = math.inf
    #: Time over which a restart has to pay, at least and at most.
    shortest_seconds: float = 60.0
    longest_seconds: float = 600.0
    #: The latter in restarts, where that is more: 20 make a change cost 5 % at least. With 5 a
    #: long job of 250 s per restart stayed on 8 accelerators beside 8 idle ones: on Sia's
    #: workloads a p99 of 1.15 instead of 0.97 of Sia's.
    longest_restarts: float = 20.0
    #: Deviations that count against a configuration nobody has measured.
    caution: float = 0.0
    #: Share of a type's accelerators that may be moved in one round to make room for others.
    movable: float = 0.1
    #: What a class of priority multiplies a job's worth by (models.md section 4.2).
    priority_base: float = 4.0
    #: Pools of fewer jobs are solved exactly, too, and the better division is taken.
    exact_jobs: int = 200


#: The other rule, with the constants that it was proposed with.
PROPORTIONAL = Weights(
    utility=logarithmic,
    exponent=0.25,
    offset_seconds=600.0,
    shortest_seconds=1200.0,
    longest_seconds=2400.0,
)
