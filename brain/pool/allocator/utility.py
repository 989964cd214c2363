"""The worth of a configuration to the pool: one small function, to be exchanged in benchmarks.

A utility takes ``UtilityInputs`` (a row per job, a column per configuration) and the ``Weights``,
and returns an array of the same shape. A configuration that is meant to be chosen at all has a
utility of at least 0. A job without accelerators has utility 0, so a job gets a configuration if
the configuration is worth its accelerators' price.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from brain.pool.allocator.views import Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UtilityInputs:
    """The inputs of a utility; J jobs with up to C configurations each."""

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
    #: Speed-up with an even share of the pool, at least 1.
    even: Floats


#: Worth of every configuration, shape (J, C).
Utility = Callable[["UtilityInputs", "Weights"], Floats]


def logarithmic(terms: UtilityInputs, weights: "Weights") -> Floats:
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


def ranked(terms: UtilityInputs, weights: "Weights") -> Floats:
    """Goodput where most jobs wait for it: w (s / even)^power keep

        w = priority · (rank + newcomers)^crowding
        rank = jobs that have as much to go, or more, at one replica; the job itself among them
        even = s with an even share of the pool
        keep = 1 - restart / clip(x / s + restart, shortest, longest) but for the current one

    Whatever shortens a job is saved by all that come after it: its rank says how many they are, and
    who has yet to come makes some more. So a crowded pool serves the short ones first, one job
    after another, and a quiet one shares: the last two together are done sooner than in turn.
    Speed counts beside what an even share would give, so that a job that scales badly is not
    put off until accelerators abound, when it can use them least.
    A job about to end is not disturbed, a long one has little to lose, and one that has just begun
    is not taken to end soon because nobody knows. The power is between throughput (1), which
    starves long jobs, and proportional fairness (0).
    """
    speed = _speed(terms, weights)
    unknown = np.isnan(terms.remaining_seconds)
    had = weights.offset_seconds + terms.attained_seconds
    left = np.maximum(np.where(unknown, had, terms.remaining_seconds), 1.0)
    loose = _expected_rank(left[:, 0], weights.looseness)[:, None]
    rank = np.where(unknown, loose, _rank(left[:, 0])[:, None]) + weights.newcomers
    ahead = np.where(unknown, np.inf, left / speed + terms.restart_seconds)
    in_restarts = weights.longest_restarts * terms.restart_seconds
    longest = np.maximum(weights.longest_seconds, in_restarts)
    keep = _keep(terms, np.clip(ahead, weights.shortest_seconds, longest))
    power = np.where(unknown, weights.unknown_power, weights.power)
    worth: Floats = terms.priority * rank**weights.crowding * (speed / terms.even) ** power * keep
    return worth


def _rank(left_seconds: Floats) -> Floats:
    """Return, for each job, the number of jobs that have as much to go or more; shape (J,)."""
    ordered = np.sort(left_seconds)
    return len(ordered) - np.searchsorted(ordered, left_seconds).astype(np.float64)


def _expected_rank(left_seconds: Floats, looseness: float) -> Floats:
    """Return ``_rank`` where the work that a job has done only hints at the work that it has left.

    Of jobs shorter by a factor f a share of f^-looseness is expected to be longer after all.
    """
    order = np.argsort(left_seconds, kind="stable")
    share = left_seconds[order] ** looseness
    shorter = np.cumsum(share) - share
    found = np.empty(len(order))
    found[order] = np.arange(len(order), 0, -1) + shorter / share
    return found


def _speed(terms: UtilityInputs, weights: "Weights") -> Floats:
    found: Floats = terms.speedup * np.exp(-weights.caution * terms.deviation)
    return found


def _keep(terms: UtilityInputs, ahead_seconds: Floats) -> Floats:
    """Share of the time ahead that a restart leaves for work."""
    moved = np.maximum(0.0, 1 - terms.restart_seconds / ahead_seconds)
    return np.where(terms.current, 1.0, moved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Every constant of a division."""

    utility: Utility = field(default=ranked)
    #: Of a job's rank in its worth: 0 shares evenly whoever waits, 1 is shortest first.
    crowding: float = 0.6
    #: Jobs that are yet to come and wait for everybody: the more, the more evenly few jobs share.
    newcomers: float = 2.0
    #: Of what a job has had when it says how long it will last; 0: it says nothing.
    looseness: float = 0.25
    #: Of the speed-up in a job's worth; where nobody knows how long it lasts the pool is shared
    #: more evenly.
    power: float = 0.8
    unknown_power: float = 0.5
    #: How much less a job counts per second that it has had; of ``logarithmic``.
    exponent: float = 0.25
    #: Added to attained work, so that a new job is not worth everything.
    offset_seconds: float = 300.0
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
    offset_seconds=600.0,
    shortest_seconds=1200.0,
    longest_seconds=2400.0,
)
