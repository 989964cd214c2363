"""The data behind a fit, for people who judge how reliable it is."""

from collections.abc import Mapping
from dataclasses import dataclass

from brain.models.step_time.evidence import FitReport
from brain.models.terms import Batching


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The data behind a fit, and how reliable the fit is."""

    #: Worlds that were used, and the reasons why others were not.
    points: int
    left_out: tuple[str, ...]
    batching: Batching
    #: For each kind of accelerator: rank, held-out error, bounds hit, members.
    fits: Mapping[str, FitReport]
    #: Factor by which bands were widened because earlier bands did not hold.
    widening: float
    #: True if recent worlds missed their forecasts, so that nothing larger is predicted.
    surprised: bool
