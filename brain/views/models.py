"""The model of how jobs scale, and the outcomes of promises."""

from dataclasses import dataclass
from datetime import datetime

from brain.types.job import JobId
from brain.types.recommendation import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A promise of throughput, and what was measured afterwards."""

    job: JobId
    job_name: str
    generation: int
    #: The size that was promised about.
    replicas: int
    promised: Prediction
    measured: Prediction
    #: Whether what was measured lies in the 90 % band.
    inside: bool
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """The outcomes of promises, to compare with the share of nine in ten that 90 % bands
    promise.
    """

    count: int
    #: Share of measurements inside of their bands, and the 90 % interval of that share.
    coverage: float
    coverage_low: float
    coverage_high: float
    #: Mean of log measured over promised: above 0, more was achieved than promised.
    bias: float
    #: Mean absolute percentage error; 0.1 is 10 %.
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The data behind the fit for one kind of accelerator."""

    accelerator: str
    observations: int
    configurations: int
    #: Directions that the data tell apart, of ten.
    rank: int
    #: Root mean square error of log step time at rows left out; None where fewer than two are.
    held_out_error: float | None
    bounds_hit: tuple[str, ...]
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeTrial:
    """Micro-batches whose measurement would improve the model of a size without a restart."""

    #: The size that is doubtful.
    replicas: int
    local_batch: float
    accumulation: int
    #: Share of the doubt that goes.
    learned: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The noise of a job's sampled gradients, or the reason why it is unknown."""

    #: Gradient noise scale in examples, with its 90 % interval; None where it is not measured.
    examples: float | None = None
    low: float | None = None
    high: float | None = None
    #: Why it is not measured; None where it is.
    unavailable: str | None = None
    #: Global batch in examples that others are judged against, and that of the present world.
    first_batch: float | None = None
    batch: float | None = None
    #: What an example of the present batch is worth, in examples of the first one; 1 where the
    #: noise is not measured, and the global batch then stays.
    efficiency: float = 1.0
    #: Share of a step that the slowest rank waits for the exchange of gradients; None where it was
    #: not measured.
    exchange_wait_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BestBatch:
    """The batch with the most goodput at the present size, in examples, within the owner's
    limits.
    """

    #: Examples per optimizer step over all workers, and how each worker would make them.
    examples: float
    local_batch: float
    accumulation: int
    #: What an example of it brings, in examples of the first batch.
    efficiency: float
    #: Change of goodput against the present batch; 0.2 is 20 % more.
    gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldBatch:
    """The batch that a script receives if it asks for one (``batch.tune``), in examples."""

    #: Examples per optimizer step over all workers, and how each worker makes them.
    examples: int
    local_batch: int
    accumulation: int
    learning_rate_scale: float
    #: Why, in one sentence; None where it is the document's.
    reason: str | None = None
    #: Replicas that it is tried for; None where it is taken for its own sake.
    trial: int | None = None
    #: Whether the script makes it; None where that is not measured yet.
    taken: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelView:
    """The model of how a job scales, with its uncertainty."""

    #: ``examples/s``, or ``steps/s`` where no batch was seen.
    unit: str
    #: What the model rests on, in one sentence; where there is none, what is missing.
    basis: str
    fitted: bool
    batching: str | None = None
    #: Worlds that were used, and why others were not.
    points: int = 0
    left_out: tuple[str, ...] = ()
    fits: tuple[Fit, ...] = ()
    #: Factor by which bands were widened because earlier ones did not hold.
    widening: float = 1.0
    #: Whether the job lately was other than predicted, so that nothing larger is.
    surprised: bool = False
    noise: Noise
    #: What the next change is reckoned to cost, and on how many of the job's own that rests.
    restart_seconds: float
    restarts_measured: int
    #: Training time to come, and why that long.
    remaining_seconds: float
    remaining_basis: str
    trials: tuple[FreeTrial, ...] = ()
    #: Where the batch may be chosen, and the noise of gradients is measured: the best one here.
    best_batch: BestBatch | None = None
    #: What the script is asked to take now; None where it does not ask.
    told_batch: ToldBatch | None = None
    calibration: Calibrated | None = None
    #: Newest first.
    kept: tuple[Kept, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsView:
    """Promised against measured, over all jobs."""

    calibration: Calibrated | None
    #: Newest first.
    kept: tuple[Kept, ...]
