"""Sparklines of jobs: the throughput of the last hours in a few points."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from brain.ports import SeriesBucket, SeriesStretch, Transaction
from brain.types.job import Job, JobId

#: So many points over so long at most.
_POINTS, _SPAN = 48, timedelta(hours=3)
#: A sparkline is drawn again once it is this part of a point older.
_AGED = 4
#: Sparklines that are kept.
_KEPT = 4096

Sparkline = tuple[float | None, ...]


class Sparklines:
    """Sparklines with their beginnings and ends, kept for a fraction of a point's width.

    They are most of what a list costs: each rests on thousands of samples, and hardly moves.
    """

    def __init__(self) -> None:
        self._kept: dict[JobId, tuple[SeriesStretch, Sparkline]] = {}

    def drawn(
        self, tx: Transaction, metrics: Iterable[tuple[Job, str]], now: datetime
    ) -> Mapping[JobId, Sparkline]:
        """The sparklines of jobs, each of the metric beside it; none where a job is too young."""
        asked = {
            job.id: stretch for job, metric in metrics if (stretch := _stretch(job, metric, now))
        }
        aged = {job: it for job, it in asked.items() if not self._is_good(job, it)}
        points = tx.telemetry.lines(aged, points=_POINTS)
        drawn = {job: (it, _sparkline(it, points.get(job, ()))) for job, it in aged.items()}
        if len(self._kept) > _KEPT:
            self._kept.clear()
        self._kept.update(drawn)
        return {job: (drawn.get(job) or self._kept[job])[1] for job in asked}

    def _is_good(self, job: JobId, asked: SeriesStretch) -> bool:
        known, _ = self._kept.get(job, (None, None))
        if known is None or known.metric != asked.metric:
            return False
        age = asked.until - known.until
        return timedelta(0) <= age * _AGED * _POINTS <= known.until - known.since


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
