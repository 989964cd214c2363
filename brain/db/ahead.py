"""Rows of many jobs that one statement read; a transaction answers later queries about one job from
them.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import NamedTuple

from brain.types.job import JobId
from brain.types.telemetry import HostSample, TelemetryLosses, ThroughputSample


class Heard(NamedTuple):
    """All samples of a job from a given time on, oldest first."""

    since: datetime
    samples: Sequence[ThroughputSample]


@dataclass(slots=True)
class KnownSamples:
    """Samples and losses by job; jobs that were not read are missing."""

    throughput: dict[JobId, Heard] = field(default_factory=dict)
    hosts: dict[JobId, tuple[datetime, Sequence[HostSample]]] = field(default_factory=dict)
    losses: dict[JobId, TelemetryLosses] = field(default_factory=dict)

    def throughput_since(
        self, job: JobId, since: datetime, epoch: int | None
    ) -> Sequence[ThroughputSample] | None:
        """Return the samples of a job and epoch from ``since`` on; None unless all of these were
        read.
        """
        heard = self.throughput.get(job)
        if heard is None or since < heard.since:
            return None
        found = heard.samples[_first(heard.samples, since) :]
        return [each for each in found if epoch is None or each.place.epoch == epoch]

    def hosts_since(self, job: JobId, since: datetime) -> Sequence[HostSample] | None:
        """Return the host samples of a job from ``since`` on; None unless all of
        these were read.
        """
        begin, samples = self.hosts.get(job, (None, ()))
        if begin is None or since < begin:
            return None
        return samples[_first(samples, since) :]


def _first(samples: Sequence[ThroughputSample] | Sequence[HostSample], since: datetime) -> int:
    return bisect_left(samples, since, key=attrgetter("measured_at"))
