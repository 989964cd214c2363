"""How long a replica may take to end once it is asked to: one setting, ``checkpoint.graceSeconds``.

A replica that is asked to leave trains on to a safe point, then its workers get the signal and
their grace. A scaler that waits for less would cut the grace short.
"""

#: Seconds that a script has to save and end after the signal, where nobody says otherwise;
#: torchrun has the same.
GRACE_SECONDS = 30.0
#: Seconds that a replica which is asked to leave is kept for a safe point.
SAFE_POINT_SECONDS = 20.0
#: Seconds to end what has no grace, or has used it up, and to write down how it ended.
_LAST_SECONDS = 5.0
#: More is a mistake: a pod that hangs would hold its node for longer than a day.
MOST_SECONDS = 86_400.0


def leave_seconds(grace_seconds: float | None = None) -> float:
    """Return how long a replica may take from the request to leave until it is gone.

    >>> leave_seconds(), leave_seconds(120)
    (55.0, 145.0)
    """
    grace = GRACE_SECONDS if grace_seconds is None else grace_seconds
    return SAFE_POINT_SECONDS + grace + _LAST_SECONDS
