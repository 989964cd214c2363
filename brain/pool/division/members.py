"""The data of one job that a round needs to divide the pool."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from brain.models.earlier import work_done
from brain.models.fitting import Point
from brain.models.job import JobModel
from brain.models.sizes import Size
from brain.models.step_time.kinds import KindSpeeds, SpeedRatio, learn
from brain.models.terms import Batching
from brain.optimizer import guards
from brain.optimizer.guards import Hold
from brain.optimizer.narrowing import BESIDE_OTHERS, fits_devices, narrowed
from brain.optimizer.situation import Situation, SlowNode, Untenable, deviation
from brain.pool.allocator import Curve, JobPlacement
from brain.pool.allocator.views import GOODPUT
from brain.pool.division.shapes import ANYWHERE, Spread, shapes, spreads
from brain.pool.division.trials import trial
from brain.types.job import Job, OptimizeMode
from brain.types.recommendation import Prediction
from brain.types.resources import NodeName

#: Number of sizes of one job that are all compared; of more, those above 16 grow by a fifth each.
_SIZES = 40
#: Factor on the goodput of a size that breaks a limit of the owner which another size keeps: the
#: job gets the breaking size only if the other finds no room.
_UNTENABLE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolMember:
    """The data of one job that a round may use."""

    job: Job
    #: What policies know of the job; None while the job waits to start.
    situation: Situation | None = None
    #: The reason why the job stays as it is; None if it may change.
    hold: Hold | None = None
    #: Observed placement of the job's replicas; None if it has none.
    current: JobPlacement | None = None
    #: Goodput by kind of accelerator; empty while the job is held.
    curves: dict[str, Curve]
    #: Curves that apply instead if other jobs wait before this one; empty if there are none.
    yields: dict[str, Curve] = field(default_factory=dict)
    #: The owner's limit that the present size breaks and another size of ``curves`` keeps.
    untenable: Untenable | None = None
    #: Work done so far, in seconds of the smallest size on the slowest kind.
    attained_seconds: float = 0.0
    #: Work left, in the same seconds; None if unknown.
    remaining_seconds: float | None = None

    @property
    def key(self) -> str:
        """Return the job's key in a round: its id."""
        return str(self.job.id)

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.current.nodes if self.current else ()

    @property
    def flees(self) -> SlowNode | None:
        """Return the node that the job has to leave because the node is slow; None if there is
        none.
        """
        if self.situation is None or self.hold is not None or not self.curves:
            return None
        return self.situation.slow


#: Codes of holds that only spare a job a restart; such a job changes all the same if a job of
#: higher priority waits.
YIELDING = frozenset({"dwell", "flapping"})
#: What a pool knows of its kinds of accelerator before any job had two of them.
UNKNOWN_KINDS = learn(())
#: Holds in the order of their interest to a person. No job of a pool is rigid: other jobs may take
#: resources that it does not need.
GUARDS = tuple(guard for guard in guards.ALL if guard is not guards.rigid)


def shares(job: Job) -> bool:
    """Return True if Brain decides about a job together with the other jobs of its pool.

    A job that reserves neither accelerators nor cores takes nothing from other jobs, so Brain
    decides about it alone.
    """
    resources = job.resources
    wants = job.document.optimize_mode is OptimizeMode.CLUSTER
    return wants and (resources.gpus > 0 or resources.cpu_millis > 0)


def beside_slow(members: Sequence[PoolMember]) -> list[PoolMember]:
    """Return the members; hold each one that shares a node with a member that leaves the node."""
    slow = {one.flees.node for one in members if one.flees}
    return [
        replace(one, hold=_beside(one, slow), curves={})
        if one.hold is None and one.flees is None and _on(one, slow)
        else one
        for one in members
    ]


def _on(member: PoolMember, nodes: Collection[NodeName]) -> list[str]:
    return sorted({str(name) for name in nodes} & set(member.nodes))


def _beside(member: PoolMember, nodes: Collection[NodeName]) -> Hold:
    return Hold(
        code="slow-node",
        reason=(
            f"another job is slowed down by node {_on(member, nodes)[0]}, and will leave the node"
        ),
        short="its node slows another job down",
        next_step="Brain decides again once that job has left the node.",
    )


def waiting(
    job: Job,
    kinds: Sequence[str],
    size: int | None = None,
    *,
    model: JobModel | None = None,
    work: float | None = None,
    rooms: Mapping[str, Spread] = MappingProxyType({}),
    speeds: KindSpeeds = UNKNOWN_KINDS,
) -> PoolMember:
    """Return a queued job as a member; if its scaling is unknown, it can only get its first size.

    Args:
        job: The queued job.
        kinds: Kinds of accelerator that the job may be given.
        size: The size to which a job that ran before returns.
        model: The model from earlier runs of the job's script; if there is one, the pool chooses
            the size.
        work: All of the job's work in the model's unit of goodput; None if unknown.
        rooms: How many of the job's replicas fit each node, for each kind.
        speeds: Speeds of the pool's kinds, as measured by its jobs.
    """
    if model is not None:
        sizes = _few(job.document.replicas.sizes())
        drawn = {
            kind: _first_curve(model, kind, sizes, rooms.get(kind, ANYWHERE), speeds)
            for kind in kinds
        }
        curves = {kind: curve for kind, curve in drawn.items() if curve is not None}
        if curves:
            base = min(float(curve.rows[0, GOODPUT]) for curve in curves.values())
            left = None if work is None else work / base
            return PoolMember(job=job, curves=curves, remaining_seconds=left)
    first = size or job.document.replicas.first
    faster = {kind: math.exp(speeds.ratio(kind, kinds[0]).log_mean) for kind in kinds}
    return PoolMember(job=job, curves={kind: Curve.of(first, faster[kind]) for kind in kinds})


def _first_curve(
    model: JobModel, kind: str, sizes: Sequence[int], spread: Spread, speeds: KindSpeeds
) -> Curve | None:
    """Return the goodput of a job's first sizes on a kind; None if none can be predicted.

    On a kind that earlier runs of its script never had, it is that of their kind times the expected
    ratio. A trial of such a kind is worth nothing extra, because a job need not begin with it.
    """
    asked = [
        Size(replicas=n, nodes=nodes, accelerator=kind)
        for n in sizes
        for nodes in spreads(n, spread)
    ]
    known = _foreseen(model, asked)
    if known:
        return _drawn(known, [found.examples_per_second * model.worth(at) for at, found in known])
    ratio = speeds.ratio(kind, model.present.accelerator)
    return _scaled(model, sizes, ratio.log_mean, ratio.deviation)


def member(
    situation: Situation,
    *,
    current: JobPlacement | None,
    kinds: Sequence[str],
    earlier: Sequence[Point] = (),
    hold: Hold | None = None,
    spread: Spread = ANYWHERE,
    speeds: KindSpeeds = UNKNOWN_KINDS,
) -> PoolMember:
    """Return a running job as a member.

    Args:
        situation: The job's situation, as policies see it.
        current: The placement of the job's live replicas.
        kinds: Kinds of accelerator that the job may be given, its present kind first.
        earlier: The job's worlds before the present one, from which its work so far is counted.
        hold: A reason to leave the job alone, used if no guard has a reason.
        spread: How many of the job's replicas fit each node of its present kind.
        speeds: Speeds of the pool's kinds, as measured by its jobs.
    """
    asked = [guard for guard in GUARDS if situation.slow is None or guard is not guards.straggling]
    hold = next((found for guard in asked if (found := guard(situation))), hold)
    if current is None or current.replicas != situation.replicas:
        hold = hold or _elsewhere(situation, current)
    model = situation.model
    held = hold is not None and hold.code not in YIELDING
    if held or model is None or current is None:
        return PoolMember(
            job=situation.job, situation=situation, hold=hold, current=current, curves={}
        )
    left = narrowed(situation, BESIDE_OTHERS)
    sizes = _sizes(left)
    kinds = kinds[:1] if left.untenable else kinds  # no other kind is known to keep the limit
    own = _own_curve(left, model, sizes, spread)
    drawn = {kinds[0]: own} | {
        kind: _other_curve(model, kind, sizes, speeds.ratio(kind, kinds[0])) for kind in kinds[1:]
    }
    curves = {kind: curve for kind, curve in drawn.items() if curve is not None}
    yields: dict[str, Curve] = {}
    if hold is not None or guards.climbs(situation) or left.untenable:
        lower = [size for size in fits_devices(situation).sizes if size <= situation.replicas]
        least = _own_curve(situation, model, lower, spread)
        yields = {} if least is None else {kinds[0]: least}
    base = min((float(curve.rows[0, GOODPUT]) for curve in curves.values()), default=1.0)
    speed = situation.rate * model.worth(situation.replicas) / base
    return PoolMember(
        job=situation.job,
        situation=left,
        hold=hold,
        current=current,
        curves=curves if hold is None else {},
        yields=yields,
        untenable=left.untenable if hold is None and curves else None,
        attained_seconds=_attained(situation, earlier, model) / base,
        remaining_seconds=situation.remaining_seconds * speed if situation.end_known else None,
    )


def _sizes(situation: Situation) -> list[int]:
    """Return the sizes to compare, at most some dozens; the present size is left out where the
    job is to leave it for a smaller one, which always finds room.
    """
    present, chosen = situation.replicas, _few(situation.sizes)
    if situation.untenable and max(chosen, default=present) <= present:
        return [size for size in chosen if size != present]
    return sorted({*chosen, present})


def _few(sizes: Iterable[int]) -> list[int]:
    allowed, chosen, last = list(sizes), [], 0.0
    for size in allowed:
        if len(allowed) <= _SIZES or size <= 16 or size >= 1.2 * last:
            chosen.append(size)
            last = size
    return chosen


def _foreseen(model: JobModel, sizes: Sequence[Size]) -> list[tuple[Size, Prediction]]:
    """Return the sizes that the model can predict, each with its prediction."""
    return [
        (size, found)
        for size, found in zip(sizes, model.curve(sizes), strict=True)
        if isinstance(found, Prediction) and found.low > 0 and math.isfinite(found.high)
    ]


def _drawn(known: Sequence[tuple[Size, Prediction]], rates: Sequence[float]) -> Curve:
    """Return a curve of goodput ``rates``, with the deviation of each size's prediction."""
    return Curve.of(
        [size.replicas for size, _ in known],
        rates,
        [deviation(found) for _, found in known],
        [size.nodes or 0 for size, _ in known],
    )


def _own_curve(
    situation: Situation, model: JobModel, sizes: Sequence[int], spread: Spread
) -> Curve | None:
    """Return the goodput of sizes on the present kind; None if none can be predicted."""
    known = _foreseen(model, shapes(situation, sizes, spread))
    if not known:
        return None
    rates = [found.examples_per_second * model.worth(size) for size, found in known]
    hoped = [trial(situation, size.replicas) for size, _ in known]
    rates = [r * (t.factor if t else 1.0) for r, t in zip(rates, hoped, strict=True)]
    if situation.untenable:
        rates = [
            rate * _UNTENABLE if size.replicas == situation.replicas else rate
            for rate, (size, _) in zip(rates, known, strict=True)
        ]
    return _drawn(known, rates)


def _other_curve(
    model: JobModel, kind: str, sizes: Sequence[int], ratio: SpeedRatio
) -> Curve | None:
    """Return the goodput of sizes on another kind; None if none can be predicted.

    On a kind that the job never had, it is that of the present kind times what the kind is hoped
    to be worth to it.
    """
    known = _foreseen(model, [Size(replicas=size, accelerator=kind) for size in sizes])
    if known:
        return _drawn(known, [found.examples_per_second * model.worth(at) for at, found in known])
    return _scaled(model, sizes, ratio.log_hoped, ratio.deviation)


def _scaled(model: JobModel, sizes: Sequence[int], log_ratio: float, doubt: float) -> Curve | None:
    """Return the goodput of sizes on the model's present kind, scaled to another kind."""
    here = _foreseen(model, [Size(replicas=size) for size in sizes])
    if not here:
        return None
    ratio = math.exp(log_ratio)
    rates = [ratio * found.examples_per_second * model.worth(size) for size, found in here]
    doubts = [math.hypot(deviation(found), doubt) for _, found in here]
    return Curve.of([size.replicas for size, _ in here], rates, doubts)


def _attained(situation: Situation, earlier: Sequence[Point], model: JobModel) -> float:
    """Return the work done so far, in examples; in examples of the first batch where Brain
    chooses the script's batch.
    """
    present = [situation.present] if isinstance(situation.present, Point) else []
    first = model.first_batch if model.batching is Batching.TOLD else None
    return work_done((*earlier, *present), first)


def _elsewhere(situation: Situation, current: JobPlacement | None) -> Hold:
    seen = 0 if current is None else current.replicas
    return Hold(
        code="not-settled",
        reason=f"{seen} of {situation.replicas} replicas are observed on the job's nodes",
        short="the world differs from the job's size",
        next_step="Brain decides again when all replicas are observed.",
    )
