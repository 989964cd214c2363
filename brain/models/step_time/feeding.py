"""Data loading that does not scale: the loading time of a step, and the step that waits for it."""

from dataclasses import dataclass

import numpy as np
import scipy

from brain.models.step_time.columns import Floats

#: Share of a step spent waiting above which loading determines the step time; shorter waits come
#: from handing over a batch.
STARVED = 0.1
#: Share below which a step was certainly fed in time; a step between the two tells nothing about
#: the rate.
_FED = 0.05
#: Largest share of a step that counts as waiting; the rest counts as computing.
_MOST = 0.95
#: Relative error of a measured wait, and standard deviation of log loading seconds.
_WAIT_ERROR, _NOISE = 0.1, 0.05
#: Prior odds of the three feeds, before sizes tell them apart: loaders usually run beside each
#: replica, and only a trial of a larger size can show otherwise.
_ODDS = np.array([0.7, 0.15, 0.15])


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """Seconds to load a step's data (``batch / rate``), for three possible bottlenecks of loading.

    The bottleneck is each replica, each node, or one storage for all replicas. Steps that wait for
    data are as long as their loading, and other steps are at least as long. Bayes' rule gives the
    odds of the three bottlenecks. One size alone does not distinguish them, so the band covers the
    predictions of all three.
    """

    #: Log seconds per example of a replica, of a node, and of the storage, with their standard
    #: deviations.
    level: Floats
    spread: float
    #: Posterior odds of the three feeds.
    weights: Floats

    def limit(self, X: Floats, center: Floats, spread: Floats) -> tuple[Floats, Floats]:
        """Return the log seconds of steps that take ``center`` if they never wait for data.

        A step takes the longer of computing and loading. The mean and the deviation of the longer
        time follow Clark (1961); they are averaged over the three possible bottlenecks of loading.
        """
        means, variances = longer(center, spread, loads(X) + self.level[:, None], self.spread)
        mean = self.weights @ means
        return mean, np.sqrt(self.weights @ (variances + (means - mean) ** 2))


def feed(X: Floats, y: Floats, error: Floats, wait_share: Floats) -> Feed | None:
    """Return the ``Feed`` of steps that took ``y`` log seconds; None if no step waited for data.

    A step that did not wait shows that loading was at least as fast as that step. It counts only if
    it is as new as the newest step that waited; its age is judged by its error, which grows with
    age.
    """
    starved = wait_share >= STARVED
    if not starved.any():
        return None
    found, unsure = y - loads(X), np.hypot(_NOISE, error)
    precision = unsure[starved] ** -2
    now = ~starved & (error <= error[starved].min())
    most = found[:, now].min(axis=1, initial=np.inf) + _NOISE
    level = np.minimum(found[:, starved] @ precision / precision.sum(), most)
    missed = (found - level[:, None]) / unsure
    fits = -((missed[:, starved] ** 2).sum(axis=1)) / 2
    fed = wait_share < _FED
    fits += np.log(np.maximum(scipy.special.ndtr(missed[:, fed]), 1e-9)).sum(axis=1)
    odds = _ODDS * np.exp(fits - fits.max())
    spread = _NOISE * float(np.sqrt(1 + 1 / starved.sum()))
    return Feed(level=level, spread=spread, weights=odds / odds.sum())


def loads(X: Floats) -> Floats:
    """Return, for each row, the logarithms of the examples per step that one replica, one node and
    the shared storage have to load.

    >>> np.exp(loads(np.array([[2.0, 8.0, 16.0, 1.0]]))).ravel().round(6).tolist()
    [16.0, 64.0, 128.0]
    """
    nodes, replicas, batch, accumulation = X.T
    own = np.log(batch * accumulation)
    return np.array([own, own + np.log(replicas / nodes), own + np.log(replicas)])


def unfed(
    y: Floats, error: Floats, log_compute: Floats, accumulation: Floats, wait_share: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the logarithms of step times, their errors, and the logarithms of compute times, all
    without the waits for data.

    The wait has its own error, so the rest of a step that mostly waits is less certain.
    """
    share = np.where(wait_share >= STARVED, np.minimum(wait_share, _MOST), 0.0)
    waited = share * np.exp(y) / accumulation
    computes = np.exp(log_compute)
    left = np.maximum(computes - waited, (1 - _MOST) * computes)
    unsure = np.hypot(error, _WAIT_ERROR * share / (1 - share))
    return y + np.log1p(-share), unsure, np.where(share > 0, np.log(left), log_compute)


def longer(
    one: Floats, one_spread: Floats, other: Floats, other_spread: float
) -> tuple[Floats, Floats]:
    """Return mean and variance of the larger of two independent normal variables (Clark, 1961).

    >>> mean, variance = longer(np.zeros(1), np.ones(1), np.zeros(1), 1.0)
    >>> mean.round(3).tolist(), variance.round(3).tolist()
    ([0.564], [0.682])
    """
    both = np.hypot(one_spread, other_spread)
    apart = (one - other) / both
    over, density = scipy.special.ndtr(apart), np.exp(-(apart**2) / 2) / np.sqrt(2 * np.pi)
    mean = one * over + other * (1 - over) + both * density
    square = (one**2 + one_spread**2) * over + (other**2 + other_spread**2) * (1 - over)
    square += (one + other) * both * density
    return mean, np.maximum(square - mean**2, 0.0)
