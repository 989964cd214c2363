"""Sparklines of jobs: the throughput of the last hours in a few points."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from brain.api.auth import AFTER_JOB
from brain.ports import SeriesBucket, SeriesStretch, Transaction
from brain.series import Buckets
from brain.types.job import Job, JobId

#: Points of a sparkline that is drawn from all its samples, most points of one that new samples
#: continue, and the time of a sparkline.
_POINTS, _MOST_POINTS, _SPAN = 48, 60, timedelta(hours=3)
#: Age, as a part of a point's width, after which a sparkline is continued.
_AGED = 4
#: Sparklines in the cache, which drops the oldest first.
_KEPT = 4096

Sparkline = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A sparkline with the metric and the time range that it shows."""

    metric: str
    since: datetime
    until: datetime
    #: Time that a point covers.
    width: timedelta
    means: Sparkline = ()

    @property
    def missing(self) -> SeriesStretch:
        """Return the time range without points; if earlier points stay, its length is a multiple of
        their width.
        """
        begin = self.since + len(self.means) * self.width
        end = begin + self.missing_points * self.width if self.means else self.until
        return SeriesStretch(self.metric, begin, end)

    @property
    def missing_points(self) -> int:
        return -((self.since - self.until) // self.width) - len(self.means)

    def with_points(self, found: Iterable[SeriesBucket]) -> "_Drawn":
        """Return this sparkline with its missing points."""
        means: list[float | None] = [*self.means, *[None] * self.missing_points]
        for point in found:
            means[(point.at - self.since) // self.width] = point.mean
        return replace(self, means=tuple(means))


class Sparklines:
    """Sparklines of jobs, cached for a fraction of the time that one point covers, and then
    continued.

    Sparklines are the largest part of a list's cost: each needs thousands of samples. The samples
    before a job's newest measured point are not read again, so that later lists need few of them.
    """

    def __init__(self) -> None:
        self._kept: dict[JobId, _Drawn] = {}

    def drawn(
        self, tx: Transaction, metrics: Sequence[tuple[Job, str]], now: datetime
    ) -> Mapping[JobId, Sparkline]:
        """Return a sparkline of each job's given metric, by job; a job that is too
        young has none.
        """
        lines: dict[JobId, Sparkline] = {}
        begun: defaultdict[int, dict[JobId, _Drawn]] = defaultdict(dict)
        for job, metric in metrics:
            is_over, until = job.finished_at is not None, job.finished_at or now
            since = max(job.created_at, until - _SPAN)
            if since >= until:
                continue
            asked = _Drawn(metric, since, until, Buckets(since, until, _POINTS).width)
            known = self._kept.get(job.id)
            if known and _is_good(known, asked, is_over=is_over):
                lines[job.id] = known.means
            else:
                line = asked if known is None or is_over else _continued(known, asked)
                begun[line.missing_points][job.id] = line
        drawn: dict[JobId, _Drawn] = {}
        for points, some in begun.items():
            found = tx.telemetry.lines({job: it.missing for job, it in some.items()}, points=points)
            drawn.update((job, it.with_points(found.get(job, ()))) for job, it in some.items())
        # Samples of a job that just ended may be on their way.
        coming = {
            job.id for job, _ in metrics if job.finished_at and now - job.finished_at <= AFTER_JOB
        }
        self._keep({job: it for job, it in drawn.items() if job not in coming})
        return lines | {job: it.means for job, it in drawn.items()}

    def _keep(self, drawn: Mapping[JobId, _Drawn]) -> None:
        self._kept.update(drawn)
        for job in list(self._kept)[: max(0, len(self._kept) - _KEPT)]:
            self._kept.pop(job, None)


def _is_good(known: _Drawn, asked: _Drawn, *, is_over: bool) -> bool:
    age = asked.until - known.until
    most = timedelta(0) if is_over else known.width / _AGED
    return known.metric == asked.metric and timedelta(0) <= age <= most


def _continued(known: _Drawn, asked: _Drawn) -> _Drawn:
    """Return the points of ``known`` that stay, or no points if the sparkline must be drawn anew.

    The newest measured point, and the points after it, do not stay: their samples may have arrived
    later.
    """
    gone = (asked.since - known.since) // known.width
    stay = max((n for n, mean in enumerate(known.means) if mean is not None), default=0)
    line = replace(
        known,
        since=known.since + gone * known.width,
        until=asked.until,
        means=known.means[gone:stay] if gone >= 0 else (),
    )
    points = len(line.means) + line.missing_points
    fits = known.metric == asked.metric and known.until <= asked.until
    return line if fits and line.means and points <= _MOST_POINTS else asked
