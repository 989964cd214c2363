"""The data behind a fit, for people who ask how far to trust it."""

from collections.abc import Mapping
from dataclasses import dataclass

from brain.models.step_time.ensemble import FitReport
from brain.models.terms import Batching


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The data behind a fit, and how far to trust it."""

    #: Worlds that were used, and why others were not.
    points: int
    left_out: tuple[str, ...]
    batching: Batching
    #: Per kind of accelerator: rank, held-out error, bounds hit, members.
    fits: Mapping[str, FitReport]
    #: Factor by which bands were widened because earlier ones did not hold.
    widening: float
    #: Whether the job lately was other than predicted, so that nothing larger is predicted.
    surprised: bool
