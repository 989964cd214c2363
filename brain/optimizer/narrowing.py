"""Functions that exclude sizes, each for one reason: for a job alone, and for a job in a pool.

A narrowing takes a situation and returns a situation with fewer sizes, each excluded size with the
reason. The present size always stays. models.md section 5 has the formulas and constants.
"""

from collections.abc import Callable, Sequence

from brain.optimizer import guards
from brain.optimizer.batches import outgrown, unsettled
from brain.optimizer.limits import within_limits, within_limits_beside_others
from brain.optimizer.situation import Situation
from brain.optimizer.worth import worth
from brain.typeset import change, count, percent

#: Least gain for a return to a size that was left within the hour.
_BACK = 0.15
#: Share of a step spent waiting for data above which more replicas do not help: if the CPUs are
#: busy or storage is slow, and in any case.
_HUNGRY, _STARVING, _BUSY, _STALLED = 0.1, 0.5, 0.9, 0.1

Narrowing = Callable[[Situation], Situation]


def narrowed(situation: Situation, by: Sequence[Narrowing]) -> Situation:
    """Return the situation after all narrowings are applied in order."""
    for narrow in by:
        situation = narrow(situation)
    return situation


def within_room(situation: Situation) -> Situation:
    """Exclude sizes that the pool has no room for now."""
    why = f"the pool has room for {count(situation.room, 'replica')} now"
    return situation.without([size for size in situation.sizes if size > situation.room], why)


def fits_devices(situation: Situation) -> Situation:
    """Exclude smaller sizes at which a worker's batch, or its part of the divided training state,
    might not fit its device.
    """
    if situation.device_examples is None and situation.sharded is None:
        return situation
    return situation.without_each(Situation.overflows)


def not_in_vain(situation: Situation) -> Situation:
    """Exclude sizes whose throughput recently fell short of the promise."""
    why = "this size fell short of its promise within the last 6 h"
    return situation.without(situation.disappointed, why)


def starves(situation: Situation) -> bool:
    """Return True if workers wait for data for so long that more workers do not help."""
    waits, busy = situation.data_wait_share or 0.0, situation.cpu_share or 0.0
    stalled = (situation.io_stalled_share or 0.0) > _STALLED
    return waits >= _STARVING or (waits > _HUNGRY and (busy > _BUSY or stalled))


def fed(situation: Situation) -> Situation:
    """Exclude larger sizes while workers wait for data, because more workers would wait, too.

    Measured sizes are kept, because their rates include the waiting.
    """
    return situation.without_each(_unfed) if starves(situation) else situation


def _unfed(situation: Situation, size: int) -> str | None:
    if size < situation.replicas or not situation.predict(size).exploring:
        return None
    waits, stalled = percent(situation.data_wait_share or 0.0), situation.io_stalled_share or 0.0
    why = ", because storage is slow" if stalled > _STALLED else ""
    return f"workers wait for data during {waits} of each step{why}; more workers would wait, too"


def judged(situation: Situation) -> Situation:
    """Exclude larger sizes of a job whose batch size Brain chooses, until its gradient noise and
    the resulting batch size are measured at the present job size.

    The result matters: at the first batch size only a few replicas may be worthwhile, and at a
    larger batch size many. To try another batch size costs no restart.
    """
    larger = [size for size in situation.sizes if size > situation.replicas]
    if unsettled(situation):
        return situation.without(larger, "Brain first measures the noise of gradients")
    if outgrown(situation):
        return situation.without(larger, "Brain first measures a better batch at the present size")
    return situation


def up_only(situation: Situation) -> Situation:
    """Exclude smaller sizes while a job may only grow, because its last growth is recent."""
    if not guards.climbs(situation):
        return situation
    smaller = [size for size in situation.sizes if size < situation.replicas]
    return situation.without(smaller, "the job grew recently")


def not_back(situation: Situation) -> Situation:
    """Exclude sizes that the job left within the last hour, unless the gain of returning is too
    large to be noise.
    """
    return situation if situation.untenable else situation.without_each(_feigned)


def _feigned(situation: Situation, size: int) -> str | None:
    if size not in situation.left_lately or worth(situation, size) > _BACK:
        return None
    return (
        "Brain left this size less than an hour ago, and returns only for a gain above "
        f"{change(_BACK)}"
    )


#: Narrowings for a job that is a pool of its own.
ALONE: Sequence[Narrowing] = (
    within_room,
    fits_devices,
    not_in_vain,
    fed,
    judged,
    up_only,
    within_limits,
    not_back,
)
#: Narrowings for a job that shares its pool; the division itself knows the room, and the nodes on
#: which a size fell short.
BESIDE_OTHERS: Sequence[Narrowing] = (
    fits_devices,
    fed,
    judged,
    up_only,
    within_limits_beside_others,
)
