"""Sparklines of jobs: the throughput of the last hours in a few points."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from brain.api.auth import AFTER_JOB
from brain.ports import SeriesBucket, SeriesStretch, Transaction
from brain.types.job import Job, JobId

#: Most points of a sparkline, and its time.
_POINTS, _SPAN = 48, timedelta(hours=3)
#: Age, as a part of a point's width, after which a sparkline is drawn again.
_AGED = 4
#: Sparklines in the cache, which drops the oldest first.
_KEPT = 4096

Sparkline = tuple[float | None, ...]


class Sparklines:
    """Sparklines of jobs with their time ranges, cached for a fraction of the time that one point
    covers.

    Sparklines are the largest part of a list's cost: each needs thousands of samples, and changes
    little.
    """

    def __init__(self) -> None:
        self._kept: dict[JobId, tuple[SeriesStretch, Sparkline]] = {}

    def drawn(
        self, tx: Transaction, metrics: Sequence[tuple[Job, str]], now: datetime
    ) -> Mapping[JobId, Sparkline]:
        """Return a sparkline of each job's given metric, by job; a job that is too
        young has none.
        """
        asked = {
            job.id: stretch for job, metric in metrics if (stretch := _stretch(job, metric, now))
        }
        ends = {job.id: job.finished_at for job, _ in metrics if job.finished_at}
        # Looked up once, because another thread may drop sparklines meanwhile.
        known = {job: self._kept.get(job) for job in asked}
        good = {
            job: it[1]
            for job, it in known.items()
            if it and _is_good(it[0], asked[job], is_over=job in ends)
        }
        aged = {job: it for job, it in asked.items() if job not in good}
        points = tx.telemetry.lines(aged, points=_POINTS)
        drawn = {job: (it, _sparkline(it, points.get(job, ()))) for job, it in aged.items()}
        # Samples of a job that just ended may be on their way.
        coming = {job for job, end in ends.items() if now - end <= AFTER_JOB}
        self._keep({job: it for job, it in drawn.items() if job not in coming})
        return good | {job: line for job, (_, line) in drawn.items()}

    def _keep(self, drawn: Mapping[JobId, tuple[SeriesStretch, Sparkline]]) -> None:
        self._kept.update(drawn)
        for job in list(self._kept)[: max(0, len(self._kept) - _KEPT)]:
            self._kept.pop(job, None)


def _is_good(known: SeriesStretch, asked: SeriesStretch, *, is_over: bool) -> bool:
    age = asked.until - known.until
    most = timedelta(0) if is_over else (known.until - known.since) / (_AGED * _POINTS)
    return known.metric == asked.metric and timedelta(0) <= age <= most


def _stretch(job: Job, metric: str, now: datetime) -> SeriesStretch | None:
    until = job.finished_at or now
    since = max(job.created_at, until - _SPAN)
    return SeriesStretch(metric, since, until) if since < until else None


def _sparkline(stretch: SeriesStretch, points: Iterable[SeriesBucket]) -> Sparkline:
    width = (stretch.until - stretch.since) / _POINTS
    means: list[float | None] = [None] * _POINTS
    for point in points:
        means[min(_POINTS - 1, int((point.at - stretch.since) / width))] = point.mean
    return tuple(means)
