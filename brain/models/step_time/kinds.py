"""Relative speeds of kinds of accelerator, learned from jobs of a pool that ran on several kinds.

The log speed of job j on kind k is modelled as

    y_jk = a_j + b_k + e_jk        b_k ~ N(0, 0.7²),  e_jk ~ N(0, 0.45²)

so a pair of kinds that one job measured is informative about every other job. Both standard
deviations, 0.7 and 0.45, come from the one-GPU speeds in the tables of Sia, which cover six
applications on three kinds.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from brain.models.step_time.columns import Floats

#: Standard deviation of log speed between kinds of accelerator, and between jobs on one kind.
_KINDS, _JOBS = 0.7, 0.45


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedRatio:
    """The expected speed of a job on one kind of accelerator, relative to the kind on which it
    runs.
    """

    #: Log of the expected ratio of throughputs, new to present kind.
    log_mean: float
    #: Standard deviation of that logarithm for one job.
    deviation: float

    @property
    def log_hoped(self) -> float:
        """Return the log ratio that Brain assigns to a trial of the new kind.

        It is the expected ratio plus the value of the trial: after a trial the job keeps the better
        of the two kinds (expected improvement; Jones et al., 1998). So a kind that is probably
        slower gets almost no credit, and neither does one that is certainly faster.
        """
        z = abs(self.log_mean) / self.deviation
        density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        beyond = math.erfc(z / math.sqrt(2)) / 2
        return self.log_mean + self.deviation * (density - z * beyond)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KindSpeeds:
    """Log speeds of kinds of accelerator over all jobs, with their covariance."""

    #: Index of each kind that a job was measured on.
    index: Mapping[str, int]
    #: Shape (kinds,).
    mean: Floats
    #: Shape (kinds, kinds).
    covariance: Floats

    def ratio(self, new: str, present: str) -> SpeedRatio:
        """Return the expected ratio of throughputs of a job on two kinds."""
        mean, variance = 0.0, 2 * _JOBS**2
        seen = np.zeros(len(self.index))
        for kind, sign in ((new, 1.0), (present, -1.0)):
            if kind in self.index:
                seen[self.index[kind]] += sign
            else:
                variance += _KINDS**2
        mean += float(seen @ self.mean)
        variance += float(seen @ self.covariance @ seen)
        return SpeedRatio(log_mean=mean, deviation=math.sqrt(variance))


def learn(seen: Iterable[Mapping[str, float]]) -> KindSpeeds:
    """Return the speeds of kinds, learned from the jobs' measurements.

    ``seen`` has, for each job, the log step time of one configuration on each of the job's kinds. A
    job with only one kind has no influence. Jobs with the same kinds are added up first, which is
    faster.
    """
    alike = defaultdict[tuple[str, ...], list[Mapping[str, float]]](list)
    for one in seen:
        if len(one) > 1:
            alike[tuple(sorted(one))].append(one)
    index = {kind: at for at, kind in enumerate(sorted({kind for had in alike for kind in had}))}
    precision, told = np.eye(len(index)) / _KINDS**2, np.zeros(len(index))
    for had, jobs in alike.items():
        at = [index[kind] for kind in had]
        # The level of each job is not known, so only differences between its kinds count.
        centred = (np.eye(len(at)) - 1 / len(at)) / _JOBS**2
        precision[np.ix_(at, at)] += len(jobs) * centred
        told[at] -= centred @ [sum(job[kind] for job in jobs) for kind in had]
    covariance: Floats = np.asarray(np.linalg.inv(precision), dtype=np.float64)
    return KindSpeeds(index=index, mean=covariance @ told, covariance=covariance)
