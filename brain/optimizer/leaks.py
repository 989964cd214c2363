"""The choice to restart a job before leaking memory runs out, if the restart costs less than
running out of memory.
"""

from dataclasses import dataclass

from brain.types.estimate import Band
from brain.typeset import duration

#: Seconds in which Brain reads memory, decides and tells the job.
_DECIDES_SECONDS = 60.0
#: Saves that a restart may wait for: the first one may come too soon, or fail.
_SAVES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """A job whose memory leaks, with the costs of a restart and of running out of memory."""

    #: Seconds until memory runs out.
    left: Band
    #: Seconds for which the present world has leaked.
    age_seconds: float
    #: Usual seconds between two saves; None: fewer than two saves were seen in this world.
    save_seconds: float | None
    #: Seconds since the last save.
    saved_seconds: float
    #: Seconds without training of a restart at a safe point, and after a replica was lost.
    restart_seconds: float
    heal_seconds: float
    #: True if the other replicas go on with all work after one is lost.
    keeps_work: bool
    #: True if the job ends with the next failure.
    last_failure: bool
    #: Seconds until the end of the run; None: its end is not known.
    ends_seconds: float | None
    #: True if a person has to approve the restart, who needs time.
    asks: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartChoice:
    """The decision to restart at the next save or not, with the reason in one sentence."""

    restart: bool
    reason: str
    #: Seconds of training that each end costs; None: not known.
    restart_costs: float | None = None
    crash_costs: float | None = None


def choose_restart(leak: Leak) -> RestartChoice:
    """Compare a restart at the next safe point with running out of memory.

    Running out of memory costs the work since the last save, on average half the time between two
    saves, and the recovery (``heal``). A restart costs its downtime. Because a planned restart ends
    the world before memory runs out, worlds end more often:

        crash = save / 2 + heal,    planned = restart T / (T - left),    T = age + left

    If Brain may act, it therefore waits until the memory left suffices only for two more saves and
    the restart, according to the low end of the band. If a person has to approve, Brain does not
    wait: it proposes the restart if a restart at that later time would pay.

    >>> leak = Leak(left=Band(value=600, low=500, high=700), age_seconds=3000, save_seconds=300,
    ...     saved_seconds=10, restart_seconds=10, heal_seconds=20, keeps_work=False,
    ...     last_failure=False, ends_seconds=None, asks=False)
    >>> choice = choose_restart(leak)
    >>> choice.restart, choice.restart_costs, choice.crash_costs
    (True, 12.0, 170.0)
    """
    left, save = leak.left, leak.save_seconds
    lasts = f"the job leaks memory and runs out of it in {duration(left.value)} "
    lasts += f"({duration(left.low)} to {duration(left.high)})"
    if leak.ends_seconds is not None and leak.ends_seconds < left.low:
        return _no(f"{lasts}, but the run ends first, in {duration(leak.ends_seconds)}")
    if save is None:
        return _no(
            f"{lasts}; Brain has not yet seen the script save twice, so it cannot predict a safe "
            "point"
        )
    lead = _SAVES * save + leak.restart_seconds + _DECIDES_SECONDS
    if leak.saved_seconds + left.low < save:
        return _no(
            f"{lasts}, before the next save, which is about "
            f"{duration(save - leak.saved_seconds)} away"
        )
    early = left.low > lead
    if early and not leak.asks:
        return _no(f"{lasts}; a restart pays only in the last {duration(lead)} before that")
    whole = leak.age_seconds + left.value
    planned = leak.restart_seconds * whole / (whole - min(left.value, lead))
    crash = leak.heal_seconds + (0.0 if leak.keeps_work else save / 2)
    costs = f"a restart at a save costs {duration(planned)} of training, and running out of memory "
    if leak.last_failure:
        costs += "ends the job, whose restarts are used up"
    else:
        costs += f"costs {duration(crash)}"
    pays = leak.last_failure or planned < crash
    return RestartChoice(
        restart=pays, reason=f"{lasts}; {costs}", restart_costs=planned, crash_costs=crash
    )


def _no(reason: str) -> RestartChoice:
    return RestartChoice(restart=False, reason=reason)
