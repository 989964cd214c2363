"""The utility of a configuration for the pool: one small function that benchmarks can replace.

A utility takes ``UtilityInputs`` (a row per job, a column per configuration) and the ``Weights``,
and returns an array of the same shape. A job without accelerators has utility 0, so no
configuration with a utility below 0 is ever chosen. A job gets a configuration if its utility is at
least the price of its accelerators.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from brain.pool.allocator.views import Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UtilityInputs:
    """The inputs of a utility, for J jobs with up to C configurations each."""

    #: Shape (J, C): goodput, divided by that of the job's smallest configuration on its slowest
    #: type.
    speedup: Floats
    #: Shape (J, C): standard deviation of the logarithm of the speed-up.
    deviation: Floats
    #: Shape (J, C): accelerators.
    replicas: Floats
    #: Shape (J, C): True for the job's present configuration, the only one without a restart.
    current: NDArray[np.bool_]
    #: Shape (J, 1) from here on. True if the job runs; a job also runs in the table that reckons
    #: the cost of a move, in which ``current`` is False everywhere.
    runs: NDArray[np.bool_]
    #: As in ``JobView``; unknown values are NaN.
    attained_seconds: Floats
    remaining_seconds: Floats
    waited_seconds: Floats
    age_seconds: Floats
    restart_seconds: Floats
    #: ``priority_base`` to the power of the job's priority class.
    priority: Floats
    #: Speed-up with an even share of the pool, at least 1.
    even: Floats


#: Utility of every configuration, shape (J, C).
Utility = Callable[["UtilityInputs", "Weights"], Floats]


def logarithmic(terms: UtilityInputs, weights: "Weights") -> Floats:
    """Proportional fairness: w (1 + ln s) keep              (models.md section 4.2)

        w = priority · (offset + attained)^-exponent · (1 + waited / 30 min, at most 4)
        keep = 1 for the current configuration, else
               1 - restart / clip(5 restart, shortest, longest)

    ``s`` is the speed-up. The 1 in ``1 + ln s`` makes admission worth more than any doubling.
    """
    weight = (weights.offset_seconds + terms.attained_seconds) ** -weights.exponent
    patience = np.minimum(1 + terms.waited_seconds / 1800, 4)
    ahead = np.clip(5 * terms.restart_seconds, weights.shortest_seconds, weights.longest_seconds)
    gain = 1 + np.log(terms.speedup) - weights.caution * terms.deviation
    return terms.priority * weight * patience * gain * _keep(terms, ahead)


def ranked(terms: UtilityInputs, weights: "Weights") -> Floats:
    """Speed-up, weighted by the number of jobs that are served later: w (s / even)^power keep

        w = priority · (rank + newcomers)^crowding
        rank = jobs that have as much to go, or more, at one replica; the job itself among them
        even = s with an even share of the pool
        keep = 1 for the current configuration, else
               1 - restart / clip(x / s + restart, shortest, longest)

    ``s`` is the speed-up, ``x`` the time left at one replica. If a job ends sooner, every job that
    is served after it ends sooner by the same time. The rank is the number of these jobs, and
    ``newcomers`` adds jobs that will still arrive. So a crowded pool serves short jobs first, one
    after another. In a pool with few jobs, jobs share the accelerators, because the last two jobs
    end sooner side by side than one after the other. The speed-up is divided by the speed-up with
    an even share. Otherwise a job that scales badly would wait until many accelerators are free,
    although it can use them least. A restart matters a lot for a job that will end soon, and little
    for a long job. The length of a job that has just begun is unknown, so it is not assumed to end
    soon. The power lies between maximum throughput (1), which starves long jobs, and proportional
    fairness (0).
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
    """Return, for each job, the number of jobs with as much work left, or more; shape (J,)."""
    ordered = np.sort(left_seconds)
    return len(ordered) - np.searchsorted(ordered, left_seconds).astype(np.float64)


def _expected_rank(left_seconds: Floats, looseness: float) -> Floats:
    """Return ``_rank`` for jobs whose work left is only guessed from the work done.

    Among jobs that seem shorter by a factor f, the share f^-looseness is expected to be longer.
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
    """Return the share of the time ahead that a restart leaves for work."""
    moved = np.maximum(0.0, 1 - terms.restart_seconds / ahead_seconds)
    return np.where(terms.current, 1.0, moved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Every constant of a division."""

    utility: Utility = field(default=ranked)
    #: Exponent of a job's rank in its weight: 0 shares evenly among waiting jobs, 1 serves the
    #: shortest first.
    crowding: float = 0.6
    #: Jobs that are yet to come and would wait behind every job; a larger number shares more evenly
    #: among few jobs.
    newcomers: float = 2.0
    #: Exponent of attained work in the guess of work left; 0: attained work says nothing about it.
    looseness: float = 0.25
    #: Exponent of the speed-up in a job's utility. The pool is shared more evenly where the length
    #: of jobs is unknown.
    power: float = 0.8
    unknown_power: float = 0.5
    #: Exponent by which a job's weight falls with attained seconds; ``logarithmic`` uses it.
    exponent: float = 0.25
    #: Seconds added to attained work, so that the weight of a new job is finite.
    offset_seconds: float = 300.0
    #: Shortest and longest time over which a restart has to pay, in seconds. The next change of a
    #: job in a crowded pool usually comes within minutes.
    shortest_seconds: float = 60.0
    longest_seconds: float = 240.0
    #: Longest time in restarts, used where it exceeds ``longest_seconds``: with 8 a change costs
    #: 12.5 % at least (decision record 149).
    longest_restarts: float = 8.0
    #: Standard deviations subtracted from the speed-up of a configuration that was never measured.
    caution: float = 0.0
    #: Share of a type's accelerators that one round may move to make room for other jobs.
    movable: float = 0.1
    #: Factor of a job's weight for each step of its priority class (models.md section 4.2).
    priority_base: float = 4.0
    #: Pools of fewer jobs are also solved exactly, and the better division is taken.
    exact_jobs: int = 200


#: The constants proposed with ``logarithmic``, the other utility.
PROPORTIONAL = Weights(
    utility=logarithmic,
    offset_seconds=600.0,
    shortest_seconds=1200.0,
    longest_seconds=2400.0,
)
