"""Advice on the amounts that the replicas of each role should reserve, with reasons."""

from collections.abc import Callable
from dataclasses import dataclass

from brain.errors import Undetermined
from brain.models.resources import cpu, host_memory
from brain.models.resources.server_memory import Forecast
from brain.models.resources.servers import EASY
from brain.models.resources.use import MIB, MemoryKill, QuotaStop, RoleUse
from brain.types.advice import AmountAdvice, ResourceAdvice, SpaceAdvice, Starvation
from brain.types.estimate import Band
from brain.types.resources import Resources
from brain.types.roles import PS
from brain.typeset import cores, count, duration, gibibytes, percent, percentile

_DAY_SECONDS = 24 * 3600.0
#: Time during which no less is advised than an amount that ran out: three half-lives of use.
_REMEMBERED_SECONDS = 3 * cpu.HALF_LIFE_SECONDS
#: Share of time in which use is within the low amount, and within the high one.
_QUIET, _AMPLE = 0.5, 0.999
#: Least days for which use counts as seen, so that a first reading has a band.
_LEAST_DAYS = 0.01
#: Factors of the wanted memory between which the present reservation stays.
_MEMORY_UP, _MEMORY_DOWN = 1.05, 0.90
#: Share of the present CPU reservation down to which it stays if nobody asked for it.
_GUESS_DOWN = 0.90
#: Share of its limit above which memory use may have been held down.
_MEMORY_FULL = 0.98
#: Time in days that halves the excess of the high memory.
_HALF_HOUR_DAYS = 0.5 / 24
#: Largest factor on its present use that a server keeps for its growth until the end.
_GROWS = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Starved:
    """Measurements of a role whose data loaders are too slow for its devices."""

    of: Starvation
    #: Sentence on the evidence.
    because: str
    #: mCPU above which loading hides behind computing.
    loader_millis: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSigns:
    """Facts about a role other than its resource use."""

    #: Replicas of the role, and True if they wait for each other.
    replicas: int
    coupled: bool
    reserved: Resources
    #: True if the reservation is still the one that earlier runs needed.
    guessed: bool = False
    #: True if a plan changes amounts anyway, so that a small reduction needs no plan of its own.
    joins: bool = False
    #: Resources of the largest node; None: no node is known.
    largest: Resources | None = None
    #: Time until leaking memory runs out.
    lasts_seconds: Band | None = None
    #: Memory of a server when the next change could be in effect, and at the end of the run.
    grows: tuple[Forecast, Forecast] | None = None
    starved: Starved | None = None


def advise(use: RoleUse, signs: RoleSigns, *, now_seconds: float) -> ResourceAdvice | None:
    """Return the advice for one role; None if nothing was measured for it."""
    processor, memory = _cpu(use, signs, now_seconds), _memory(use, signs, now_seconds)
    if processor is None and memory is None:
        return None
    unresolved = use.unresolved(now_seconds)
    return ResourceAdvice(
        role=use.role,
        cpu=processor,
        memory=memory,
        shared_memory=_space(use.shm_bytes, use.shm_capacity_bytes),
        scratch=_space(use.scratch_bytes, use.scratch_capacity_bytes),
        basis=_basis(use),
        reason=unresolved or _first(processor, memory, signs),
        exploring=not use.explored,
        memory_lasts_seconds=signs.lasts_seconds,
        memory_unresolved=unresolved,
        starved=signs.starved.of if signs.starved else None,
        starved_because=signs.starved.because if signs.starved else "",
    )


def _cpu(use: RoleUse, signs: RoleSigns, now_seconds: float) -> AmountAdvice | None:
    share = cpu.percentile(signs.replicas) if signs.coupled else cpu.ASYNCHRONOUS
    reserved = float(signs.reserved.cpu_millis)
    # A server that is busier than that keeps workers in its queue.
    margin = 1 / EASY if use.role == PS else cpu.MARGIN
    down, seen = (_GUESS_DOWN if signs.guessed else cpu.DOWN), use.known_cpu
    try:
        wanted = cpu.request(seen, share=share, present=reserved or None, margin=margin, down=down)
    except Undetermined:
        return None
    used = seen.quantile(share)
    said = f"a replica used up to {cores(used)} for {percentile(share)} of the time"
    limit = use.cpu_limit(reserved)
    loader = signs.starved.loader_millis if signs.starved else 0.0
    held = use.held_down(limit)
    if loader > max(wanted, 1.5 * limit):
        wanted = loader
        said = f"with {cores(loader)} or more, loading data no longer delays computing"
    elif held:
        wanted = max(wanted, cpu.raised(limit, loader, throttled_share=use.throttled))
        said = f"use reached the limit of {cores(limit)}, so the need is unknown; reserve 50 % more"
        if cpu.throttles(use.throttled):
            stopped = f"throttled a replica in {percent(use.throttled)} of its scheduler periods"
            said = f"the quota of {cores(limit)} {stopped}, so the need is unknown"
    elif (stop := use.stopped(now_seconds)) and (floor := _unstopped(stop, reserved)) > wanted:
        wanted = floor
        said = f"{said}, but a quota of {cores(stop.limit_millis)} throttled a replica within a day"
    return _amount(
        seen,
        1.0,
        wanted=wanted,
        used=used,
        days=use.days,
        reserved=reserved,
        largest=signs.largest.cpu_millis if signs.largest else None,
        reason=said,
        ample=cpu.request(seen, share=_AMPLE, margin=margin),
        learns_days=1.0,
        show=cores,
        short=use.throttled if held else 0.0,
    )


def _unstopped(stop: QuotaStop, reserved: float) -> float:
    """Return the mCPU below which a quota would stop a replica again.

    Use averaged over seconds asks for less than bursts need, so CPU that was raised against a quota
    would be lowered, fall short and be raised again. A present reservation is not raised by this.
    """
    enough = cpu.raised(stop.limit_millis, throttled_share=stop.share)
    return min(enough, reserved) if reserved else enough


def _memory(use: RoleUse, signs: RoleSigns, now_seconds: float) -> AmountAdvice | None:
    seen, peak = use.known_memory, use.peak_bytes
    if not peak:
        return None
    reserved, limit = float(signs.reserved.memory_bytes), use.memory_limit_bytes
    wanted, said = host_memory.request(peak), f"a replica used {gibibytes(peak)} at most"
    leaks = signs.lasts_seconds is not None
    down = 1.0 if signs.joins else _GUESS_DOWN if signs.guessed else _MEMORY_DOWN
    growing = leaks or signs.grows is not None
    ample, learns_days = wanted, 0.0 if use.foreseen else _HALF_HOUR_DAYS
    if signs.grows is not None:
        soon, last = signs.grows
        if soon.request_bytes > wanted:
            wanted = soon.request_bytes
            said = (
                f"{said}, and memory will grow to {gibibytes(soon.most_bytes)} before "
                "the next change"
            )
        ample, learns_days = max(wanted, min(last.request_bytes, _GROWS * peak)), 0.0
    if limit > 0 and peak > _MEMORY_FULL * limit:
        wanted = max(wanted, host_memory.raised(limit, growing=growing))
        said = f"use was at the limit of {gibibytes(limit)}, so the need is unknown"
    elif reserved and down * reserved <= wanted <= _MEMORY_UP * reserved:
        wanted = reserved
    kill = _worst(use, now_seconds)
    level = host_memory.raised(kill.limit_bytes, growing=growing) if kill is not None else 0.0
    if kill is not None and level > wanted:
        wanted, said = level, f"a replica ran out of memory at {gibibytes(kill.limit_bytes)}"
    if leaks and signs.lasts_seconds is not None:
        said = f"{said}, and memory leaks: it runs out in {duration(signs.lasts_seconds.value)}"
    return _amount(
        seen,
        MIB,
        wanted=wanted,
        used=peak,
        days=use.replica_days,
        reserved=reserved,
        largest=signs.largest.memory_bytes if signs.largest else None,
        reason=said,
        ample=ample,
        learns_days=learns_days,
        show=gibibytes,
    )


def _space(used: float, capacity: float) -> SpaceAdvice | None:
    """Return advice on a file system: as for memory, and half as much again if it was full."""
    if capacity <= 0:
        return None
    full = used > _MEMORY_FULL * capacity
    target = 1.5 * capacity if full else host_memory.request(used)
    return SpaceAdvice(used=used, capacity=capacity, target=target)


def _amount(
    usage: cpu.CpuUsage,
    unit: float,
    *,
    wanted: float,
    used: float,
    days: float,
    reserved: float,
    largest: int | None,
    reason: str,
    ample: float,
    learns_days: float,
    show: Callable[[float], str],
    short: float = 0.0,
) -> AmountAdvice:
    """Return an amount between its bounds, which are wider for shorter histories.

    As in Kubernetes' vertical autoscaler the upper bound is ``1 + 1 day / history`` times as high;
    for memory it is ``1 + 0.5 hours / history``, because training repeats itself within hours, with
    the history of each replica that waits for no other; and for servers the forecast, which is
    renewed as they grow. ``short`` is the share of time in which the reservation was too little
    although use cannot show it.
    """
    target = min(wanted, float(largest)) if largest else wanted
    known = max(_LEAST_DAYS, days)
    high = max(ample, target) * (1 + learns_days / known)
    if target < wanted:
        reason = (
            f"{reason}; no node has more than {show(target)}, but {show(wanted)} would be better"
        )
    return AmountAdvice(
        low=min(target, usage.quantile(_QUIET) * unit * (1 + 0.001 / known) ** -2),
        target=target,
        high=max(target, min(high, float(largest))) if largest else high,
        uncapped=wanted,
        reserved=reserved,
        used=used,
        above=usage.above(target / unit),
        reserved_above=max(short, usage.above(reserved / unit)) if reserved else 0.0,
        unused=usage.unused(target / unit),
        reserved_unused=usage.unused(reserved / unit),
        reason=reason,
    )


def _worst(use: RoleUse, now_seconds: float) -> MemoryKill | None:
    """Return the kill at the highest limit that is still remembered."""
    recent = [one for one in use.kills if now_seconds - one.at_seconds <= _REMEMBERED_SECONDS]
    return max(recent, key=lambda one: one.limit_bytes, default=None)


def _first(processor: AmountAdvice | None, memory: AmountAdvice | None, signs: RoleSigns) -> str:
    """Return the most important sentence of the advice."""
    if signs.starved is not None:
        return signs.starved.because
    both = [one for one in (memory, processor) if one is not None]
    changed = [one for one in both if one.changes]
    urgent = signs.lasts_seconds is not None or (memory and memory.target > memory.reserved > 0)
    order = changed if urgent else changed[::-1]
    return (order or both)[0].reason


def _basis(use: RoleUse) -> str:
    seconds = use.days * _DAY_SECONDS
    own = f"{duration(seconds)} of this run" if use.since_seconds is not None else ""
    runs = f"{count(len(use.runs), 'earlier run')} of the script" if use.runs else ""
    return " and ".join(filter(None, (own, runs)))
