"""Speeds of kinds of accelerator, as the jobs of a pool measured them on more than one kind.

The log speed of job j on kind k is taken for

    y_jk = a_j + b_k + e_jk        b_k ~ N(0, 0.7²),  e_jk ~ N(0, 0.45²)

so that any pair of kinds that a job measured tells something about the kinds of every other job.
Both deviations are those of one GPU in the tables of Sia: six applications on three kinds.
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
    """What one kind of accelerator is expected to be worth to a job that runs on another."""

    #: Log of the expected ratio of throughputs, new to present kind.
    log_mean: float
    #: Standard deviation of that logarithm for one job.
    deviation: float

    @property
    def log_hoped(self) -> float:
        """Return the log ratio at which a trial of the new kind counts.

        It is the expected ratio plus the value of learning it: after a trial the job has the better
        of the two kinds, and the trial is worth what that is above the better expectation (expected
        improvement; Jones et al., 1998). So a kind that is probably slower earns no credit, nor
        does one that is certainly faster.
        """
        z = abs(self.log_mean) / self.deviation
        density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        beyond = math.erfc(z / math.sqrt(2)) / 2
        return self.log_mean + self.deviation * (density - z * beyond)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KindSpeeds:
    """Log speeds of kinds of accelerator to jobs in general, with their covariance."""

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
    """Return the speeds of kinds that jobs measured.

    ``seen`` has, for each job, the log of its step time on each of its kinds, of one configuration.
    A job that was measured on one kind tells nothing. Jobs on the same kinds are added up before
    they are combined, because every look at a job with several kinds learns anew.
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
