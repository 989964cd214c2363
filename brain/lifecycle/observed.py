"""A job's throughput: measurements of its present world, and predictions for other sizes.

Each ended world is stored as one point, so a turn reads only the samples of the present world.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache

from brain import wire
from brain.errors import Undetermined
from brain.lifecycle.desired import asked_batch, may_act, wished_batch
from brain.models.earlier import EarlierRun, noise_at, outdated, tells_noise, work_done
from brain.models.efficiency import GradientSums, NoiseScale, norms_of
from brain.models.fitting import Point, measure, medians_by_rank
from brain.models.forecast import foretell
from brain.models.job import JobModel
from brain.models.job_fit import fit
from brain.models.terms import SpeedTerms, terms_of, unit_of
from brain.optimizer.batches import taken
from brain.ports import StoredFit, Transaction
from brain.settings import Settings
from brain.types.job import Job
from brain.types.recommendation import Prediction
from brain.types.telemetry import SHARDED, Phase, ThroughputSample
from brain.types.world import World

#: Kind of the stored fit. New fields of ``Point`` get defaults, so that fits of an earlier release
#: stay readable; an unreadable shape gets a new kind.
KIND = "throughput-points/1"
#: Kind of the stored sums of gradient statistics.
GRADIENTS = "gradient-sums/1"
#: Kind of the stored list of measurements of earlier runs of the script, newest first.
RUNS = "earlier-runs/2"
#: Seconds of newest samples on which a point rests: a minute if that suffices, because reading it
#: costs a tenth of the rest of a turn. A slow job's point rests on the longest time, whose error is
#: smallest, unless the shortest sufficient one shows that the job's speed has changed.
WINDOWS_SECONDS = (60.0, 150.0, 360.0, 900.0)
#: Time in which a world whose steps are slow is measured, as a multiple of the time of the steps
#: that it needs, and the longest such time in seconds.
_SLOW, _SLOWEST_SECONDS = 1.5, 4 * 3600.0
#: Slow steps after which their samples are stale.
_MISSING = 3
#: Deviations above which two of these times show different speeds.
_DEVIATIONS = 3.0
#: Additional seconds of samples after which the point of the present world is stored again.
KEEP_SECONDS = 30.0
_REMEMBERED = 2500


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputObserved:
    """A job's throughput at one moment."""

    world: World | None
    samples: tuple[ThroughputSample, ...] = ()
    #: One point per earlier world that was measured, oldest first.
    earlier: tuple[Point, ...] = ()
    #: The point of the present world, or the reason why it is not measured yet.
    present: Point | Undetermined
    model: JobModel | None = None
    #: Sums of the job's gradient statistics over all its worlds.
    gradients: GradientSums = field(default_factory=GradientSums)

    @property
    def noise(self) -> NoiseScale | Undetermined:
        """Return the gradient noise scale; if the scale is unknown, return the reason. The reason
        comes from the probe if the probe reported one.
        """
        try:
            return self.gradients.scale
        except Undetermined as unsettled:
            told = [s for s in self.samples if s.gns_steps or s.gns_unavailable]
            why = told[-1].gns_unavailable if told else None
            return unsettled if why is None else Undetermined(why, code=unsettled.code)

    @property
    def sharded(self) -> bool:
        """Return True if the probe saw that workers divide the training state among them."""
        return self.sharded_bytes is not None or any(
            (one.gns_unavailable or "").startswith(SHARDED) for one in self.samples
        )

    @property
    def sharded_bytes(self) -> int | None:
        """Return the bytes of the largest part of the divided training state that a worker holds; 0
        if unknown, None if no state is divided.
        """
        parts = {one.place.rank: one.sharded_bytes for one in self.samples}
        known = [part for part in parts.values() if part is not None]
        return None if not known else 0 if 0 in known else max(known)

    @property
    def now(self) -> Prediction | None:
        """Return the throughput of the present world; None if too little was measured."""
        return self.present.measured if isinstance(self.present, Point) else None

    @property
    def unit(self) -> str:
        """Return the unit of all rates of this object: examples/s, or steps/s if the batch size is
        unknown.
        """
        points = [*self.earlier, self.present]
        known = [unit_of(point) for point in points if isinstance(point, Point)]
        return known[-1] if known else "examples/s"

    @property
    def missing(self) -> str:
        """Return the reason why the present world is not measured yet; empty if it is measured."""
        return "" if isinstance(self.present, Point) else str(self.present)

    def predict(self, replicas: int) -> Prediction:
        """Return the throughput that the model predicts at a size.

        Raises:
            Undetermined: too little was measured, or the model cannot predict this size.
        """
        if isinstance(self.present, Undetermined):
            raise self.present
        assert self.model is not None, "a measured world has a model"
        return self.model.predict(replicas)

    def promise(self, replicas: int) -> Prediction | None:
        """Return the throughput that the model predicts at a size; None if the model cannot predict
        it.
        """
        try:
            return self.predict(replicas)
        except Undetermined:
            return None

    def at(self, replicas: int) -> Prediction | None:
        """Return the last throughput measured at a size, in this world or an earlier one."""
        points = [*self.earlier, self.present]
        seen = [p.measured for p in points if isinstance(p, Point) and p.replicas == replicas]
        return seen[-1] if seen else None


def look(tx: Transaction, job: Job, *, settings: Settings, now: datetime) -> ThroughputObserved:
    """Return the known throughput of a job without storing it; ``remember`` stores it."""
    world = tx.worlds.latest(job.id)
    if world is None:
        return ThroughputObserved(world=None, present=Undetermined("no world has formed yet"))
    stored, terms = points(tx, job), terms_of(job.document)
    asked = asked_batch(tx, job)
    # Another batch in the same world is another configuration, so it gets another point.
    since = asked.at if asked else world.formed_at
    earlier = tuple(p for p in stored if p.epoch != world.epoch or p.until <= since)
    samples, present = of_world(tx, job, world, settings=settings, now=now)
    sums = gradients(tx, job).with_samples(samples)
    sight = ThroughputObserved(
        world=world, samples=samples, earlier=earlier, present=present, gradients=sums
    )
    if not isinstance(present, Point):
        return sight
    runs, wish = same_script(tx, job), wished_batch(tx, job)
    if not may_act(job, settings) or (wish is not None and not taken(wish, present)):
        # Brain does not choose the script's batch, or the script does not follow.
        terms = replace(terms, told=False)
    foretold = None if since > world.formed_at else _foretold(present, stored, terms, runs)
    try:
        heard: Sequence[EarlierRun] = runs
        for _ in range(2):
            noise, batch = _noise(sight, present, stored, heard, terms.global_batch)
            present = replace(present, noise_scale=noise, noise_batch=batch, foretold=foretold)
            model = fit(present, earlier, terms=terms, runs=runs)
            if len(model.inherited.heard(runs)) == len(heard):
                break
            heard = model.inherited.heard(runs)
        return replace(sight, present=present, model=model)
    except Undetermined as unusable:
        return replace(sight, present=unusable)


def of_world(
    tx: Transaction, job: Job, world: World, *, settings: Settings, now: datetime
) -> tuple[tuple[ThroughputSample, ...], Point | Undetermined]:
    """Return the newest samples of a world (no more than needed), and the throughput computed from
    them.

    Samples from before Brain requested another batch size belong to another configuration, and are
    left out.
    """
    asked = asked_batch(tx, job)
    begun = world.formed_at if asked is None else max(world.formed_at, asked.at)

    def within(seconds: float) -> tuple[tuple[ThroughputSample, ...], Point | Undetermined]:
        since = now - timedelta(seconds=seconds)
        since = since if asked is None else max(since, begun)
        samples = tuple(tx.telemetry.throughput(job.id, since=since, epoch=world.epoch))
        return samples, achieved(samples, settings, independent=job.document.independent)

    shortest, *_, longest = WINDOWS_SECONDS
    for seconds in WINDOWS_SECONDS:
        samples, found = within(seconds)
        if isinstance(found, Point) or now - timedelta(seconds=seconds) <= begun:
            break
    if not isinstance(found, Point) and now - timedelta(seconds=longest) > begun:
        needed = measuring_seconds(samples, settings)
        samples, found = within(needed) if needed > longest else (samples, found)
    elif isinstance(found, Point) and seconds > shortest:
        more, steady = within(longest)
        if isinstance(steady, Point) and _agree(found, steady):
            return more, steady
    return samples, found


def measuring_seconds(samples: Sequence[ThroughputSample], settings: Settings) -> float:
    """Return the seconds that it takes to measure a world with these samples, if its steps are
    slow; 0 if there are no samples.

    A rank needs some training steps, and also spends time on other steps: those in which it saves.
    """
    if not samples:
        return 0.0
    spent: dict[int, float] = defaultdict(float)
    trained: dict[int, int] = defaultdict(int)
    for one in [one for one in samples if one.phase is not Phase.WARMUP] or samples[-1:]:
        spent[one.place.rank] += one.steps * one.step_seconds_mean
        trained[one.place.rank] += one.steps if one.phase is Phase.TRAINING else 0
    step_seconds = max(seconds / max(1, trained[rank]) for rank, seconds in spent.items())
    return min(_SLOW * settings.minimum_steps * step_seconds, _SLOWEST_SECONDS)


def fresh_seconds(newest: ThroughputSample | None) -> float:
    """Return the seconds within which the next samples should arrive; 0 if there is no sample yet.
    If a step takes longer than a second, the probe sends one sample per step.
    """
    return 0.0 if newest is None else _MISSING * newest.steps * newest.step_seconds_mean


def stale_after_seconds(newest: ThroughputSample | None, settings: Settings) -> float:
    """Return the age from which the newest sample is stale."""
    return max(settings.stale_seconds, fresh_seconds(newest))


def _agree(newest: Point, longer: Point) -> bool:
    """Return True if two windows' step times differ by no more than their errors explain."""
    error = math.hypot(newest.relative_error, longer.relative_error)
    return abs(math.log(newest.step_seconds / longer.step_seconds)) <= _DEVIATIONS * error


def _noise(
    sight: ThroughputObserved,
    present: Point,
    stored: Sequence[Point],
    runs: Sequence[EarlierRun],
    first: float | None,
) -> tuple[float | None, float | None]:
    """Return the noise of a job's gradients, and the batch at which this job measured it.

    The noise is that of the present world if it is measured; else that of earlier runs after the
    same work; else the last known noise of the job, until that is outdated.
    """
    settled = sight.noise.examples if isinstance(sight.noise, NoiseScale) else None
    batch = present.examples_per_step
    last = next((p for p in reversed(stored) if p.noise_scale is not None), None)
    before = None if last is None else last.noise_batch
    if settled is not None and tells_noise(present):
        return settled, batch if any(map(norms_of, sight.samples)) else before
    done = [*sight.earlier, present]
    found = noise_at(runs, work_done(done, first), batch) if runs else None
    if found is not None or (present.processes == 1 and outdated(done, first)):
        return found, None
    return last.noise_scale if settled is None and last else settled, before


def _foretold(
    present: Point, stored: Sequence[Point], terms: SpeedTerms, runs: Sequence[EarlierRun]
) -> Prediction | None:
    """Return the first forecast of the present world, made before the world was measured."""
    kept = [point.foretold for point in stored if point.epoch == present.epoch]
    return kept[0] if kept else foretell(present, stored, terms=terms, runs=runs)


def achieved(
    samples: Sequence[ThroughputSample], settings: Settings, *, independent: bool = False
) -> Point | Undetermined:
    """Return the throughput of a world from its samples, or the reason why it is unknown."""
    try:
        return measure(
            samples,
            minimum_steps=settings.minimum_steps,
            spread_limit=settings.spread_limit,
            independent=independent,
        )
    except Undetermined as unknown:
        return unknown


def step_medians(
    ranks: Mapping[int, Sequence[ThroughputSample]],
) -> Mapping[int, float]:
    """Return each rank's median step time in seconds, by the rule that ``achieved`` uses, too."""
    return {rank: seconds for rank, (seconds, _) in medians_by_rank(ranks).items()}


def remember(tx: Transaction, job: Job, sight: ThroughputObserved, now: datetime) -> None:
    """Store the present world's point for use after the world has ended, and the gradient
    statistics.
    """
    if sight.gradients.first[0] > 0 and _newer(gradients(tx, job).until, sight.gradients.until):
        kept = wire.encode(sight.gradients).decode()
        tx.fits.put(StoredFit(job=job.id, kind=GRADIENTS, parameters=kept, fitted_at=now))
    if isinstance(sight.present, Point) and _worth_storing(points(tx, job), sight):
        parameters = wire.encode([*sight.earlier, sight.present]).decode()
        tx.fits.put(StoredFit(job=job.id, kind=KIND, parameters=parameters, fitted_at=now))


def _worth_storing(stored: list[Point], sight: ThroughputObserved) -> bool:
    """Return True if the stored point of this world and batch is missing, half a minute old, or
    lacks a noise that is known now: a trial ends as soon as the noise is known.
    """
    last, present = stored[-1] if stored else None, sight.present
    if last is None or last in sight.earlier:
        return True
    if not isinstance(present, Point):
        return False
    learned = last.noise_scale is None and present.noise_scale is not None
    return learned or _newer(last.until, present.until)


def _newer(stored: datetime | None, until: datetime | None) -> bool:
    """Return True if the present measurement is newer than the stored one by enough to store it."""
    if stored is None or until is None:
        return until is not None
    return (until - stored).total_seconds() >= KEEP_SECONDS


def points(tx: Transaction, job: Job) -> list[Point]:
    """Return all stored points of a job, the oldest world first."""
    stored = tx.fits.get(job.id, KIND)
    return wire.decode(stored.parameters, list[Point]) if stored else []


def same_script(tx: Transaction, job: Job) -> tuple[EarlierRun, ...]:
    """Return the earlier runs of the job's script that were stored with the job."""
    stored = tx.fits.get(job.id, RUNS)
    return _decoded(stored.parameters) if stored else ()


@lru_cache(maxsize=_REMEMBERED)
def _decoded(runs: str) -> tuple[EarlierRun, ...]:
    """Decode earlier runs; equal text gives the same objects, so that cached fits to them are
    found.
    """
    return tuple(wire.decode(runs, list[EarlierRun]))


def gradients(tx: Transaction, job: Job) -> GradientSums:
    """Return the stored gradient statistics of a job; empty sums if none are stored."""
    stored = tx.fits.get(job.id, GRADIENTS)
    return wire.decode(stored.parameters, GradientSums) if stored else GradientSums()
