"""Why Brain did something, or did not."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One measured or predicted fact a decision rests on: a label and its value with unit."""

    label: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A size that was considered and not taken."""

    replicas: int
    #: Predicted change of throughput against the present size; 0.34 is 34 % more. None: unknown.
    gain: float | None
    why_not: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer to *why*, in the order a person reads it."""

    #: Machine-readable kind of the reason: ``scales-well``, ``stale-telemetry`` …
    code: str
    #: One sentence with the dominant reason and its two numbers.
    reason: str
    evidence: tuple[Evidence, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    #: Probability, 0 to 1, that the promise is kept; None where nothing is promised.
    confidence: float | None = None
    #: What happens next, or what a person can do.
    next_step: str
