"""The work that a job has left.

Brain computes the work left from the declared work if earlier declarations were right, else from
the work of earlier runs of the script if those runs agree. Otherwise Brain assumes that the work
left equals the work done so far.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

#: Factor by which a declaration must be off to disprove later ones: half or twice.
_WRONG = math.log(2.0)
#: Most declarations that count, the newest first, because habits change.
_RECENT = 5
#: Standard deviation of log work of a declaration that was never tested.
_UNTESTED = 0.5
#: Fewest runs from which lengths are known; and the least standard deviation of log work.
_FEW, _EXACT = 2, 0.05
#: Least share of the latest runs that must agree on a length for it to be expected again.
_AGREE = 0.75
#: Most seconds of training left that a job's age supports (models.md section 5).
LONGEST_SECONDS = 6 * 3600.0
#: A job of unknown length is as likely to end within its age as after it; nine in ten end between
#: these shares of it.
_SHARES = (1 / 19, 19.0)
_Z90 = 1.6449


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """Training time left at the present speed, with its 90 % band."""

    seconds: float
    low_seconds: float
    high_seconds: float
    #: True if a declaration or earlier runs support the time; False if only the job's age does.
    known: bool
    #: The reason, in one sentence.
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The work of a run that ended, and the work that its owner had declared, if any."""

    #: Optimizer steps, repeated ones counted once; in steps of the first batch if Brain chose
    #: others.
    steps: float
    #: The same in examples; None if a batch was not seen.
    examples: float | None = None
    declared_steps: int | None = None
    declared_epochs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredWork:
    """The declared work of a run, and the declared and actual work of earlier runs."""

    #: Declared work of the whole run.
    work: float
    #: True if the work is in examples, False if in optimizer steps.
    in_examples: bool = False
    #: Declared and actual work of runs that ended, oldest first.
    finished: tuple[tuple[float, float], ...] = ()

    @property
    def ratios(self) -> tuple[float, ...]:
        """Return the ratio of declared to actual work for each earlier run; ``proved`` judges these
        ratios.
        """
        return tuple(said / did for said, did in self.finished if did > 0)

    @property
    def expected(self) -> float:
        """Return the expected work: the declared work, corrected by earlier runs if their
        declarations were wrong.
        """
        misses = [math.log(ratio) ** 2 for ratio in self.ratios if ratio > 0]
        exact = not misses or fmean(misses) <= _EXACT**2
        return self.work if exact else expected(self.work, self.finished)


def declared(
    steps: int | None, epochs: int | None, past: Sequence[Finished]
) -> DeclaredWork | None:
    """Return declared steps or epochs as work; None if neither is declared, or if no earlier run
    shows the length of a declared epoch.

    An epoch is as long as the epochs of earlier runs. An epoch is counted in examples if the batch
    size of all runs is known, otherwise in steps. The first run only shows the length of an epoch,
    so it does not test the declaration.

    >>> run = Finished(steps=1000, declared_epochs=10)
    >>> declared(None, 20, [run]).work, declared(None, 20, [run, run]).ratios
    (2000.0, (1.0,))
    >>> declared(None, 20, []) is None
    True
    """
    if steps is not None:
        pairs = [(float(run.declared_steps), run.steps) for run in past if run.declared_steps]
        return DeclaredWork(work=float(steps), finished=tuple(pairs))
    known = [run for run in past if run.declared_epochs]
    if epochs is None or not known:
        return None
    in_examples = all(run.examples for run in known)
    did = [run.examples if in_examples and run.examples else run.steps for run in known]
    said = [run.declared_epochs or 1 for run in known]
    each = [work / epoch for work, epoch in zip(did, said, strict=True)]
    finished = [
        (said[i] * median(each[max(0, i - _RECENT) : i]), did[i]) for i in range(1, len(known))
    ]
    return DeclaredWork(
        work=epochs * median(each[-_RECENT:]), in_examples=in_examples, finished=tuple(finished)
    )


def proved(ratios: Sequence[float]) -> bool:
    """Return True if declarations are reliable: each recent one was within a factor of two of the
    truth.

    Args:
        ratios: Declared work divided by actual work, for finished runs of the job, oldest first.

    >>> proved([1.0, 0.9]), proved([1.0, 3.0]), proved([])
    (True, False, False)
    """
    recent = [ratio for ratio in ratios[-_RECENT:] if ratio > 0]
    return bool(recent) and all(abs(math.log(ratio)) <= _WRONG for ratio in recent)


def remaining(
    *,
    done: float,
    declared: float | None,
    work_per_second: float,
    elapsed_seconds: float,
    ratios: Sequence[float] = (),
    trusted: bool = False,
) -> Remaining:
    """Return the training time to come.

    A declaration (epochs, steps or examples) is used if earlier declarations for the job were
    right, or if the caller trusts it (``trusted``), unless this run already exceeds it. Without a
    declaration, a job is expected to train for as long again as it has trained: in many populations
    of jobs, half of the jobs that reached an age reach twice that age (Harchol-Balter and Downey,
    *Exploiting Process Lifetime Distributions*, 1997).

    Args:
        done: Work done so far, in the unit of ``declared``.
        declared: All work of the run; None if nothing was declared.
        work_per_second: Present work per second, in the unit of ``declared``.
        elapsed_seconds: Seconds trained so far.
        ratios: Declared work divided by actual work, for finished runs of the job, oldest first.

    >>> remaining(done=20, declared=100, work_per_second=0.1, elapsed_seconds=200,
    ...           ratios=[1.0]).seconds
    800.0
    >>> remaining(done=20, declared=None, work_per_second=0.1, elapsed_seconds=200).seconds
    200
    """
    if declared is None:
        return _as_long_again(elapsed_seconds, "nothing was declared")
    if done >= declared:
        return _as_long_again(elapsed_seconds, "the run has already done its declared work")
    if not (trusted or proved(ratios)):
        wrong = "earlier declarations were wrong by more than a factor of two"
        why = wrong if ratios else "no declaration was tested"
        return _as_long_again(elapsed_seconds, why)
    if not (math.isfinite(work_per_second) and work_per_second > 0):
        return _as_long_again(elapsed_seconds, "no progress was measured")
    basis = "as declared; earlier declarations were right" if ratios else "as declared"
    return _until(declared, _deviation(ratios), done, work_per_second, basis)


def usual(works: Sequence[float]) -> tuple[float, float] | None:
    """Return the usual work of runs of a script, and the standard deviation of its logarithm.

    Args:
        works: Work of runs that ended well, oldest first, all in one unit.

    Returns:
        The median of the latest runs. None if there are fewer than two runs, or if more than one
            run in four differs from the median by more than a factor of two: such runs do not
            predict the next one.

    >>> usual([100.0, 110.0, 90.0])[0], usual([100.0]), usual([100.0, 900.0])
    (100.0, None, None)
    """
    recent = [work for work in works[-_RECENT:] if work > 0]
    if len(recent) < _FEW:
        return None
    middle = median(recent)
    misses = [math.log(work / middle) for work in recent]
    alike = [miss for miss in misses if abs(miss) <= _WRONG]
    if len(alike) < _AGREE * len(recent):
        return None
    return middle, math.sqrt((_UNTESTED**2 + sum(miss**2 for miss in alike)) / (1 + len(alike)))


def as_usual(
    *, done: float, works: Sequence[float], work_per_second: float, elapsed_seconds: float
) -> Remaining:
    """Return the training time left if the run does the usual work of its script.

    Args:
        done: Work done so far, in the unit of ``works``.
        works: Work of earlier runs that ended well, oldest first, all in one unit.
        work_per_second: Present work per second, in the unit of ``works``.
        elapsed_seconds: Seconds trained so far.

    >>> as_usual(done=20, works=[90, 110], work_per_second=0.1, elapsed_seconds=9).seconds
    800.0
    """
    found = usual(works)
    if found is None:
        return _as_long_again(
            elapsed_seconds, "earlier runs are too few, or differ too much in length"
        )
    work, deviation = found
    if done >= work:
        return _as_long_again(elapsed_seconds, "the run exceeds the usual work of earlier runs")
    basis = "as much work as earlier runs of its script did"
    return _until(work, deviation, done, work_per_second, basis)


def expected(declared: float, finished: Sequence[tuple[float, float]]) -> float:
    """Return the expected work of a run, from its declaration and the work of earlier runs of its
    script.

    The result is the mean, in logarithms, of the declaration and the usual work of earlier runs.
    The declaration is weighted by the errors of earlier declarations, and the usual work by the
    scatter of earlier runs. So a declaration of twice the usual work is believed if earlier
    declarations were right, and not if they were random.

    Args:
        declared: Declared work of this run.
        finished: Declared and actual work of runs that ended, oldest first.

    >>> round(expected(50.0, [(100.0, 100.0), (150.0, 100.0), (50.0, 100.0)]))
    99
    >>> round(expected(50.0, [(100.0, 100.0), (300.0, 300.0), (30.0, 30.0)]))
    50
    """
    pairs = [(said, did) for said, did in finished if said > 0 and did > 0]
    if len(pairs) < _FEW or declared <= 0:
        return declared
    misses = [math.log(said / did) for said, did in pairs]
    works = [math.log(did) for _, did in pairs]
    typical = fmean(works)
    by_word = 1 / (_EXACT**2 + fmean([miss**2 for miss in misses]))
    by_habit = 1 / (_EXACT**2 + fmean([(work - typical) ** 2 for work in works]))
    return math.exp((by_word * math.log(declared) + by_habit * typical) / (by_word + by_habit))


def _deviation(ratios: Sequence[float]) -> float:
    """Return the standard deviation of log declared work, by earlier misses and one untested
    declaration.
    """
    misses = [math.log(ratio) ** 2 for ratio in ratios[-_RECENT:] if ratio > 0]
    return math.sqrt((_UNTESTED**2 + sum(misses)) / (1 + len(misses)))


def _until(
    work: float, deviation: float, done: float, work_per_second: float, basis: str
) -> Remaining:
    """Return the time until ``work`` is done, which is known to within a deviation of its
    logarithm.
    """
    low, high = work * math.exp(-_Z90 * deviation), work * math.exp(_Z90 * deviation)
    return Remaining(
        seconds=(work - done) / work_per_second,
        low_seconds=max(0.0, low - done) / work_per_second,
        high_seconds=(high - done) / work_per_second,
        known=True,
        basis=basis,
    )


def _as_long_again(elapsed_seconds: float, why: str) -> Remaining:
    expected = min(max(elapsed_seconds, 0.0), LONGEST_SECONDS)
    return Remaining(
        seconds=expected,
        low_seconds=expected * _SHARES[0],
        high_seconds=expected * _SHARES[1],
        known=False,
        basis=f"Brain assumes that the run still needs as much time as it has taken so far: {why}",
    )
