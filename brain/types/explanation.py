"""The explanation of a decision for or against a change."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One measured or predicted fact behind a decision: a label, and a value with its unit."""

    label: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A size that was considered but not chosen."""

    replicas: int
    #: Predicted change of throughput against the present size; 0.34 is 34 % more. None: unknown.
    gain: float | None
    why_not: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The reasons for a decision, in the order in which a person reads them."""

    #: Machine-readable kind of the reason: ``scales-well``, ``stale-telemetry`` …
    code: str
    #: One sentence with the dominant reason and its two numbers.
    reason: str
    evidence: tuple[Evidence, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    #: Probability, 0 to 1, that the promise is kept; None if nothing is promised.
    confidence: float | None = None
    #: The next event, or the next step for a person.
    next_step: str
