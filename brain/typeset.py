"""Numbers, durations and changes as people read them.

Every sentence that Brain writes follows these rules: digits in groups of three, a space before
units, a true minus sign, and a dash (not 0) for an unknown value. Spaces are ordinary ones, because
programs read these sentences, too; the dashboard may replace them.
"""

import math

from brain.types.allocation import Allocation
from brain.types.plan import PlanKind, ScalePlan
from brain.types.resources import Resources
from brain.types.roles import RoleSize, groups_of

MINUS = "\u2212"
UNKNOWN = "\u2014"
_MIB, _GIB = 2**20, 2**30


def number(value: float | None, *, digits: int = 3) -> str:
    """Return ``value`` with ``digits`` significant figures and grouped thousands.

    >>> number(1842.4), number(0.0614), number(-12.5), number(None)
    ('1 842', '0.0614', '\u221212.5', '\u2014')
    """
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{abs(value):,.{decimals}f}".replace(",", " ")
    return (MINUS if value < 0 else "") + text


def quantity(value: float | None, unit: str) -> str:
    """Return a number with its unit.

    >>> quantity(1842.4, "examples/s")
    '1 842 examples/s'
    """
    return f"{number(value)} {unit}"


def count(how_many: int, thing: str) -> str:
    """Return a number with a noun, in the plural if needed.

    >>> count(1, "replica"), count(1200, "step")
    ('1 replica', '1 200 steps')
    """
    plural = "" if how_many == 1 else "s"
    return f"{how_many:,}".replace(",", " ") + f" {thing}{plural}"


def standing(state: str, reason: str) -> str:
    """Return a job's state with its reason; a reason that begins with the state says both.

    >>> standing("Failed", "exit code 1"), standing("Cancelled", "cancelled by ann")
    ('is Failed: exit code 1', 'was cancelled by ann')
    """
    return f"was {reason}" if reason.lower().startswith(state.lower()) else f"is {state}: {reason}"


def percent(share: float | None) -> str:
    """Return a share, for which 1 means all, as a percentage.

    >>> percent(0.614), percent(-0.05)
    ('61 %', '−5 %')
    """
    if share is None or not math.isfinite(share):
        return UNKNOWN
    whole = round(share * 100)
    return f"{MINUS if whole < 0 else ''}{abs(whole):,} %".replace(",", " ")


def change(gain: float | None) -> str:
    """Return a relative change with its sign.

    >>> change(0.34), change(-0.34), change(math.nan)
    ('+34 %', '\u221234 %', '\u2014')
    """
    text = percent(gain)
    return text if text.startswith((MINUS, UNKNOWN)) else f"+{text}"


def ratio(value: float) -> str:
    """Format a factor, for example of two throughputs.

    >>> ratio(1.874)
    '1.87×'
    """
    return f"{number(value)}×"


def duration(seconds: float | None) -> str:
    """Format a duration in at most two units.

    >>> duration(38), duration(5040), duration(0.21), duration(240), duration(-90)
    ('38 s', '1 h 24 min', '0.21 s', '4 min', '\u22121 min 30 s')
    """
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 0:
        return MINUS + duration(-seconds)
    if seconds < 10:
        return f"{number(seconds, digits=2)} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        rest = round(seconds) % 60 if seconds < 600 else 0
        return f"{int(seconds // 60)} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def resize(before: int, after: int) -> str:
    """Return a phrase that describes a change of size, or that the size stays.

    >>> resize(1, 2), resize(1, 1)
    ('1 → 2 replicas', '1 replica stays')
    """
    if before == after:
        return f"{count(after, 'replica')} {'stays' if after == 1 else 'stay'}"
    return f"{before} → {after} replica{'' if after == 1 else 's'}"


def amounts(before: Resources, after: Resources) -> str:
    """Return a change of the amounts that each replica reserves.

    >>> amounts(Resources(cpu_millis=1000), Resources(cpu_millis=1500, memory_bytes=2**31))
    'CPU 1 → 1.5, memory none → 2 GiB'
    """
    said = {
        "CPU": (before.cpu_millis / 1000, after.cpu_millis / 1000, ""),
        "memory": (before.memory_bytes / _GIB, after.memory_bytes / _GIB, " GiB"),
        "GPUs": (before.gpus, after.gpus, ""),
    }
    return ", ".join(
        f"{name} {_reserved(old)} → {_reserved(new)}{unit if new else ''}"
        for name, (old, new, unit) in said.items()
        if old != new
    )


def _reserved(amount: float) -> str:
    """Return a reserved amount; ``none`` instead of 0."""
    return f"{amount:.4g}" if amount else "none"


def reallocation(before: Allocation, after: Allocation) -> str:
    """Return a change of size, of the amounts that each replica reserves, or of both.

    >>> one = Allocation(replicas=1, resources=Resources(cpu_millis=1000))
    >>> reallocation(one, Allocation(replicas=2, resources=Resources(cpu_millis=2000)))
    '1 → 2 replicas, CPU 1 → 2 each'
    >>> served = Allocation(replicas=4, roles=(("ps", RoleSize(replicas=1)),))
    >>> reallocation(served, Allocation(replicas=5, roles=(("ps", RoleSize(replicas=2)),)))
    '4 → 5 replicas, ps 1 → 2'
    >>> reallocation(served, served.reserving("worker", Resources(cpu_millis=500)))
    'worker CPU none → 0.5'
    >>> mixed = Allocation(replicas=3, roles=(("large", RoleSize(processes_per_replica=8)),))
    >>> reallocation(mixed, Allocation(replicas=4, roles=mixed.roles))
    '3 → 4 replicas, worker 2 → 3'
    >>> from brain.types.batch import BatchWish
    >>> wish = BatchWish(global_size=512, local_most=64)
    >>> reallocation(one, Allocation(replicas=1, resources=one.resources, batch=wish))
    'batch none → 512'
    """
    said, sizes = reallocated(before, after, each=" each"), resize(before.replicas, after.replicas)
    if not said and before == after and after.batch not in (None, before.batch):
        assert after.batch is not None
        old = "none" if before.batch is None else before.batch.global_size
        return f"batch {old} → {after.batch.global_size}"
    if not said:
        return sizes
    return said if before.replicas == after.replicas else f"{sizes}, {said}"


def plan_change(plan: ScalePlan) -> str:
    """Return the change that a plan makes, as a noun phrase."""
    if plan.kind is PlanKind.RESTART:
        return f"the restart of {count(plan.target.replicas, 'replica')}"
    if plan.only_moves:
        to = ", ".join(node for node, _ in plan.target.nodes)
        return f"{count(plan.target.replicas, 'replica')} to {to}"
    return reallocation(plan.current, plan.target)


def reallocated(before: Allocation, after: Allocation, *, each: str = "") -> str:
    """Return a phrase about a change of roles and reserved amounts.

    Args:
        each: Text to append to amounts that apply to all replicas.
    """
    workers = amounts(before.resources, after.resources)
    alike = all(_as_workers(role, before, after) for role, _ in after.roles)
    said = f"{workers}{each}" if alike else f"worker {workers}"
    roles = [_rescaled(role, before, after) for role, _ in after.roles]
    rest = groups_of(after.roles) and before.workers != after.workers
    beside = f"worker {before.workers} → {after.workers}" if rest else ""
    return ", ".join(filter(None, (beside, said if workers else "", *roles)))


def _rescaled(role: str, before: Allocation, after: Allocation) -> str:
    """Return a change of a role's replicas, and of the amounts that each of them reserves."""
    old, new = (dict(one.roles).get(role, RoleSize(replicas=0)) for one in (before, after))
    sizes = f"{old.replicas} → {new.replicas}" if old.replicas != new.replicas else ""
    own = "" if _as_workers(role, before, after) else amounts(before.of(role), after.of(role))
    said = " ".join(filter(None, (sizes, own)))
    return said and f"{role} {said}"


def _as_workers(role: str, before: Allocation, after: Allocation) -> bool:
    """Return True if the amounts of a role's replicas change like those of a worker."""
    changes = (before.of(role), after.of(role))
    return changes == (before.resources, after.resources)


def cores(millis: float) -> str:
    """Format an amount of CPU in mCPU as a number of processors.

    >>> cores(1500), cores(1000)
    ('1.5 CPUs', '1 CPU')
    """
    text = _plain(millis / 1000)
    return f"{text} CPU" if text == "1" else f"{text} CPUs"


def gibibytes(amount: float) -> str:
    """Return bytes in GiB, or in MiB if they are less than one GiB.

    >>> gibibytes(3 * 2**30), gibibytes(2**29)
    ('3 GiB', '512 MiB')
    """
    small = amount < _GIB
    return f"{_plain(amount / (_MIB if small else _GIB))} {'MiB' if small else 'GiB'}"


def money(amount: float, currency: str) -> str:
    """Return an amount of money.

    >>> money(1842.4, "€"), money(0.5, "$")
    ('€1 842', '$0.5')
    """
    return f"{currency}{_plain(amount)}"


def percentile(share: float) -> str:
    """Format a percentile, given as a share: 0.98 is the 98th percentile.

    >>> percentile(0.98), percentile(0.995)
    ('98 %', '99.5 %')
    """
    return f"{_plain(100 * share)} %"


def _plain(value: float) -> str:
    """Format with three significant figures, without trailing zeros."""
    text = number(value)
    return text.rstrip("0").rstrip(".") if "." in text else text
