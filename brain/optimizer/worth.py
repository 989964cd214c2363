"""The score of a size: its goodput, the price of its replicas, and a credit for uncertainty.

    utility = ln goodput - EXPONENT ln replicas
    score   = utility + credit,    credit = optimism * deviation of ln goodput

(models.md section 5: this rule had the least regret of those compared on measured tables.) With the
exponent 0.5 a doubling must bring 1.41 times the goodput.
"""

import math
from collections.abc import Iterable

from brain.models.sizes import Size
from brain.models.step_time.trials import StepTimeTrial
from brain.optimizer.situation import Situation, deviation
from brain.typeset import count, percent

#: Exponent of replicas' price in goodput: 0 buys speed alone, 1 the lowest cost per example.
EXPONENT = 0.5
#: Seconds left above which there is time to explore boldly, and the credit for uncertainty above
#: and below this limit, measured on the tables of Pollux and Sia.
_LONG_SECONDS = 3 * 3600.0
_BOLD, _CAUTIOUS = 1.0, 0.5
#: Share of a declared run that is left when the credit begins to fade, and when it is gone.
_FADES, _GONE = 0.7, 0.2
#: Largest uncertainty that earns credit.
_MOST_DOUBT = 0.6
#: Least share of the variance that a trial must remove to be worth its time.
_WORTH_A_TRIAL = 0.1


def score(situation: Situation, size: int) -> float:
    """Return the score of a size: log goodput, less the price of its replicas, plus its credit.

    Raises:
        Undetermined: the size cannot be predicted.
    """
    utility = math.log(situation.useful(size)) - EXPONENT * math.log(size)
    return utility + credit(situation, size)


def credit(situation: Situation, size: int) -> float:
    """Return the credit, in log goodput, for a larger size that was never measured."""
    predicted = situation.predict(size)
    if not predicted.exploring or size <= situation.replicas:
        return 0.0
    return _optimism(situation) * min(deviation(predicted), _MOST_DOUBT)


def worth(situation: Situation, size: int, hoped: float = 0.0) -> float:
    """Return the gain of a size over the present size: in goodput for a larger size, in goodput per
    price for a smaller size.

    A gain of 20 % is 0.2. ``hoped`` is a credit that is added to the log goodput.
    """
    share = situation.useful(size) / situation.useful(situation.replicas) * math.exp(hoped)
    price = math.pow(min(1.0, size / situation.replicas), EXPONENT)
    return share / price - 1


def _optimism(situation: Situation) -> float:
    """Return the share of the uncertainty that counts as credit."""
    elapsed, rest = situation.elapsed_seconds, situation.remaining_seconds
    bold = _BOLD if rest >= _LONG_SECONDS else _CAUTIOUS
    if not situation.end_known or elapsed + rest <= 0:
        return bold
    left = rest / (elapsed + rest)
    return bold * min(max((left - _GONE) / (_FADES - _GONE), 0.0), 1.0)


def free_trial(situation: Situation, others: Iterable[int]) -> str | None:
    """Return a phrase about a free trial that could change the decision; None if there is none."""
    found = blocking_trial(situation, others)
    if found is None:
        return None
    size, trial = found
    one = trial.configuration
    return (
        f"Two minutes with {one.accumulation} micro-batch{'es' * (one.accumulation != 1)} of "
        f"{one.local_batch:.0f} examples a step would remove {percent(trial.learned)} of the "
        f"uncertainty about {count(size, 'replica')}, without a restart."
    )


def blocking_trial(situation: Situation, others: Iterable[int]) -> tuple[int, StepTimeTrial] | None:
    """Return the size whose uncertainty blocks a decision, and the most informative free trial for
    it.

    A size blocks a decision if it would be better than the present size at one end of its band.
    """
    if situation.model is None:
        return None
    present = score(situation, situation.replicas)
    doubtful = {}
    for size in others:
        predicted = situation.predict(size)
        best = score(situation, size) + math.log(predicted.high / predicted.examples_per_second)
        if predicted.exploring and best > present:
            doubtful[size] = best
    if not doubtful:
        return None
    size = max(doubtful, key=lambda size: doubtful[size])
    trial = situation.model.trial(Size(replicas=size))
    return None if trial is None or trial.learned < _WORTH_A_TRIAL else (size, trial)
