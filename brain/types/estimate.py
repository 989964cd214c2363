"""What a job will need: asked before it starts, answered from similar jobs or a probe."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from brain.types.explanation import Explanation
from brain.types.job import JobId
from brain.types.recommendation import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A quantity with its 90 % band; its unit is in the name of the field that holds it."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateQuestion:
    """What is asked beside the job document."""

    #: Work of the whole run; at most one is set. None: as the document says, else as similar jobs.
    steps: int | None = None
    examples: float | None = None
    #: With the document's ``epochs``.
    examples_per_epoch: float | None = None
    #: Money per accelerator and hour by kind, over the service's settings; ``*`` is any kind.
    prices: Mapping[str, float] = field(default_factory=dict)
    #: Sizes that end later, or cost more, are not chosen.
    deadline_seconds: float | None = None
    budget: float | None = None
    #: Sizes that take accelerators for longer are not chosen either.
    accelerator_hours: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarJob:
    """A job that the answer rests on, or would have rested on had it been more alike."""

    job: JobId
    name: str
    #: 0 to 1; above 0.5 its measurements count.
    likeness: float
    #: What is the same, in words.
    same: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """How much there is to do."""

    #: In the unit of the throughput: examples, or steps where no batch was seen.
    amount: Band
    #: Whether so many steps are made whatever the batch.
    in_steps: bool = False
    #: Where that is from, in one sentence.
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeEstimate:
    """What one size on one kind of accelerator would take; None is not known."""

    accelerator: str
    replicas: int
    nodes: int
    accelerators: float
    #: Why there is no throughput.
    undetermined: str | None = None
    throughput: Prediction | None = None
    #: What an example is worth there, in examples of the first batch; 1 where nobody knows.
    efficiency: float = 1.0
    finish_seconds: Band | None = None
    #: Hours that accelerators (where there are none: processors) are taken.
    accelerator_hours: Band | None = None
    cost: Band | None = None
    #: Sent by each node to others, gradients and what is loaded together.
    network_bytes_per_second: Band | None = None
    #: Of each replica.
    cpu_millis: Band | None = None
    memory_bytes: Band | None = None
    #: Of the fullest accelerator.
    device_memory_bytes: Band | None = None
    #: Whether it fits the pool when that is empty, and now.
    fits: bool = True
    fits_now: bool = True
    #: A prior carries it, or jobs that are only somewhat alike.
    exploring: bool = False
    #: What Brain would begin with.
    chosen: bool = False
    #: Why it is not what Brain would begin with; empty for that one.
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The answer: a row per kind of accelerator and size, and the size Brain would begin with."""

    name: str
    #: ``examples/s`` or ``steps/s``.
    unit: str
    currency: str
    #: What it rests on, in one sentence.
    basis: str
    #: The most alike first; at most ten.
    similar: tuple[SimilarJob, ...]
    work: Work | None
    sizes: tuple[SizeEstimate, ...]
    #: Why this size; None where none can be named.
    explanation: Explanation | None
    #: What is not known and how to get it, a sentence each.
    missing: tuple[str, ...]
    #: True where no similar job was measured, so that only defaults stand behind it.
    exploring: bool
