"""The model of how jobs scale, and the outcomes of promises."""

from dataclasses import dataclass
from datetime import datetime

from brain.types.job import JobId
from brain.types.recommendation import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A promise of throughput, and the later measurement."""

    job: JobId
    job_name: str
    generation: int
    #: The size of the promise.
    replicas: int
    promised: Prediction
    measured: Prediction
    #: True if the measurement lies in the 90 % band.
    inside: bool
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """The outcomes of all promises; nine in ten measurements should be within their bands."""

    count: int
    #: Share of measurements inside their bands, and the 90 % interval of that share.
    coverage: float
    coverage_low: float
    coverage_high: float
    #: Mean log of measured over promised throughput; above 0, jobs achieved more than promised.
    bias: float
    #: Mean absolute percentage error; 0.1 is 10 %.
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The data behind the fit for one kind of accelerator."""

    accelerator: str
    observations: int
    configurations: int
    #: Number of the model's ten directions that the data determine.
    rank: int
    #: Root mean square error of log step time at rows that were left out; None if fewer than two
    #: rows were measured.
    held_out_error: float | None
    bounds_hit: tuple[str, ...]
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeTrial:
    """A micro-batch size that can be measured without a restart, to improve the model for one job
    size.
    """

    #: The size whose prediction is uncertain.
    replicas: int
    local_batch: float
    accumulation: int
    #: Share of the variance that the trial removes.
    learned: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The noise of a job's sampled gradients, or the reason why it is unknown."""

    #: Gradient noise scale in examples, with its 90 % interval; None if it is not measured.
    examples: float | None = None
    low: float | None = None
    high: float | None = None
    #: The reason why the scale is not measured; None if it is.
    unavailable: str | None = None
    #: First global batch in examples, against which others are judged, and the present one.
    first_batch: float | None = None
    batch: float | None = None
    #: Worth of an example of the present batch, in examples of the first one; 1 if the noise is not
    #: measured, and the global batch then stays.
    efficiency: float = 1.0
    #: Share of a step that the slowest rank waits for the exchange of gradients; None if not
    #: measured.
    exchange_wait_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BestBatch:
    """The batch size with the most goodput at the present job size, in examples, within the owner's
    limits.
    """

    #: Examples per optimizer step over all workers, and how each worker would make them.
    examples: float
    local_batch: float
    accumulation: int
    #: Worth of an example of this batch, in examples of the first batch.
    efficiency: float
    #: Change of goodput against the present batch; 0.2 is 20 % more.
    gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldBatch:
    """The batch size that a script with ``batch.tune`` receives, in examples."""

    #: Examples per optimizer step over all workers, and how each worker makes them.
    examples: int
    local_batch: int
    accumulation: int
    learning_rate_scale: float
    #: The reason for the batch, in one sentence; None if the document declares the batch.
    reason: str | None = None
    #: Size, in replicas, for which the batch is tried; None: the batch is wanted for its own sake.
    trial: int | None = None
    #: True if the script uses the batch; None if not measured yet.
    taken: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelView:
    """The model of how a job scales, with its uncertainty."""

    #: ``examples/s``, or ``steps/s`` if no batch was seen.
    unit: str
    #: The measurements that the model rests on, or those that are missing, in one sentence.
    basis: str
    fitted: bool
    batching: str | None = None
    #: Worlds that were used, and the reasons why others were not.
    points: int = 0
    left_out: tuple[str, ...] = ()
    fits: tuple[Fit, ...] = ()
    #: Factor by which bands were widened because earlier bands did not hold.
    widening: float = 1.0
    #: True if recent worlds missed their forecasts, so that no larger size is predicted.
    surprised: bool = False
    noise: Noise
    #: Expected cost of the next change, in seconds, and the number of the job's own changes on
    #: which it rests.
    restart_seconds: float
    restarts_measured: int
    #: Training time left, and the reason for its length.
    remaining_seconds: float
    remaining_basis: str
    trials: tuple[FreeTrial, ...] = ()
    #: Best batch at the present size; None if the batch may not be chosen, or gradient noise is not
    #: measured.
    best_batch: BestBatch | None = None
    #: Batch that the script is asked to take now; None if it does not ask.
    told_batch: ToldBatch | None = None
    calibration: Calibrated | None = None
    #: Newest first.
    kept: tuple[Kept, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsView:
    """Promised and measured throughput over all jobs."""

    calibration: Calibrated | None
    #: Newest first.
    kept: tuple[Kept, ...]
