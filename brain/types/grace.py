"""The time that a replica may take to end after it is asked to leave: ``leave_seconds``.

The replica keeps training until a safe point. Then its workers get the signal to end, and have the
time of the setting ``checkpoint.graceSeconds`` to exit. A scaler has to wait at least as long as
``leave_seconds`` says.
"""

from brain.errors import BadInput

#: Default seconds that a script has to save and exit after the signal; torchrun has the same.
GRACE_SECONDS = 30.0
#: Seconds for which a replica that is asked to leave may train on to a safe point.
SAFE_POINT_SECONDS = 20.0
#: Seconds to end processes after the grace, or without one, and to record how they ended.
_LAST_SECONDS = 5.0
#: Largest grace in seconds: with more, a pod that hangs would hold its node for longer than a day.
MOST_SECONDS = 86_400.0


def leave_seconds(grace_seconds: float | None = None) -> float:
    """Return the seconds that a replica may take to end after the request to leave.

    >>> leave_seconds(), leave_seconds(120)
    (55.0, 145.0)
    """
    grace = GRACE_SECONDS if grace_seconds is None else grace_seconds
    return SAFE_POINT_SECONDS + grace + _LAST_SECONDS


def check_grace(seconds: float | None) -> None:
    """Raise BadInput for a grace period that is impossible."""
    if seconds is not None and not 0 <= seconds <= MOST_SECONDS:
        raise BadInput(
            f"checkpoint.graceSeconds {seconds:g} is not a possible grace period; give 0 to "
            f"{MOST_SECONDS:.0f} seconds",
            field="checkpoint.graceSeconds",
        )
