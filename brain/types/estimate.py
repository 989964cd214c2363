"""Estimates of a job's needs, which are made from similar jobs or a probe before the job starts."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from brain.types.explanation import Explanation
from brain.types.job import JobId
from brain.types.recommendation import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A quantity with its 90 % band; the name of the field has the unit."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateQuestion:
    """The fields of a request for an estimate, in addition to the job document."""

    #: Work of the whole run; at most one is set. None: the document's work, else that of similar
    #: jobs.
    steps: int | None = None
    examples: float | None = None
    #: Examples of one epoch, for a document with ``epochs``.
    examples_per_epoch: float | None = None
    #: Money per accelerator and hour by kind, in place of the service's settings; ``*`` is any
    #: kind.
    prices: Mapping[str, float] = field(default_factory=dict)
    #: Sizes that end later, or cost more, are not chosen.
    deadline_seconds: float | None = None
    budget: float | None = None
    #: Sizes that use more accelerator-hours are not chosen either.
    accelerator_hours: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarJob:
    """A job on which the answer is based, or would be based if it were more similar."""

    job: JobId
    name: str
    #: Likeness, 0 to 1; measurements count above 0.5.
    likeness: float
    #: The common properties, in words.
    same: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    #: Work in the unit of the throughput: examples, or steps if no batch was seen.
    amount: Band
    #: True if the number of steps is the same at any batch.
    in_steps: bool = False
    #: The source of the amount, in one sentence.
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeEstimate:
    """The needs of one size on one kind of accelerator; None means unknown."""

    accelerator: str
    replicas: int
    nodes: int
    accelerators: float
    #: The reason why there is no throughput.
    undetermined: str | None = None
    throughput: Prediction | None = None
    #: Worth of an example at this size, in examples of the first batch; 1 if unknown.
    efficiency: float = 1.0
    finish_seconds: Band | None = None
    #: Accelerator-hours; processor-hours for jobs without accelerators.
    accelerator_hours: Band | None = None
    cost: Band | None = None
    #: Bytes per second that each node sends to others: gradients and loaded data together.
    network_bytes_per_second: Band | None = None
    #: Amounts of each replica.
    cpu_millis: Band | None = None
    memory_bytes: Band | None = None
    #: Memory of the fullest accelerator.
    device_memory_bytes: Band | None = None
    #: True if the size fits the empty pool; True if it fits now.
    fits: bool = True
    fits_now: bool = True
    #: True if the numbers rest on a prior, or on jobs that are only somewhat alike.
    exploring: bool = False
    #: True for the size that Brain would begin with.
    chosen: bool = False
    #: The reason why Brain would not begin with this size; empty for the chosen one.
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The answer to a request for an estimate: a row per kind of accelerator and size, and the
    size to begin with.
    """

    name: str
    #: ``examples/s`` or ``steps/s``.
    unit: str
    currency: str
    #: Sentence on the jobs and measurements that the estimate rests on.
    basis: str
    #: Similar jobs, the most alike first; at most ten.
    similar: tuple[SimilarJob, ...]
    work: Work | None
    sizes: tuple[SizeEstimate, ...]
    #: The reason for the chosen size; None if no size can be chosen.
    explanation: Explanation | None
    #: One sentence for each unknown, with the way to measure it.
    missing: tuple[str, ...]
    #: True if no similar job was measured, so that the estimate rests on defaults only.
    exploring: bool
