"""The data behind a fit of step time, for people who judge how reliable it is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FitReport:
    """The data behind a fit, and how reliable the fit is."""

    #: Number of rows, and of different configurations among them.
    observations: int
    configurations: int
    #: Number of the log-linear member's ten directions that the data determine.
    rank: int
    #: Root mean square error of log step time at rows that were left out, linearised; None if fewer
    #: than two rows were measured.
    held_out_error: float | None
    #: Parameters of physical members that ended at a bound.
    bounds_hit: tuple[str, ...]
    #: Members that took part.
    members: tuple[str, ...]
    #: Newton steps of the physical members.
    iterations: int
