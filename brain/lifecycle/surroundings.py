"""Reads from the stores everything that a policy may know about a job, into a ``Situation``."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Any

from brain.errors import Undetermined
from brain.lifecycle.amounts import ReplicaUse, recent_use
from brain.lifecycle.capacity import Room, enforced, fitting, largest_cpus, room
from brain.lifecycle.desired import changed_at, effective_mode, reached, standing
from brain.lifecycle.devices import device_examples, sharded_memory
from brain.lifecycle.distribution import not_distributed
from brain.lifecycle.observed import ThroughputObserved, stale_after_seconds
from brain.lifecycle.plans import obstacle
from brain.lifecycle.records import BRAIN
from brain.lifecycle.saving import save_seconds_per_step
from brain.lifecycle.work import earlier_runs, limits, still_to_come
from brain.models.estimate.past import WorldUse
from brain.models.fitting import Point
from brain.models.job import JobModel
from brain.models.resources.servers import ParameterServer, ServedJob
from brain.models.restart import restart_cost
from brain.models.sizes import Size
from brain.optimizer import Situation
from brain.optimizer.guards import RETURNED
from brain.optimizer.situation import SlowNode
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.allocation import Allocation
from brain.types.document import UNSAID
from brain.types.job import Job, OptimizeMode
from brain.types.plan import PlanKind, PlanState, ScalePlan, Verdict
from brain.types.recommendation import Recommendation
from brain.types.roles import PS, WORKER, alike, others, roles_in
from brain.types.telemetry import Phase, SaveSample, ThroughputSample
from brain.types.world import Cause, World
from brain.typeset import change, duration

#: Seconds for which Brain's own changes count towards the most that a job bears.
_LATELY_SECONDS = 3600.0
#: Seconds over which the busy share of a node's CPUs is read.
_BUSY_SECONDS = 60.0
#: Seconds for which a size that fell short is not tried again.
_DISAPPOINTED_SECONDS = 6 * 3600.0
#: Difference in log batch above which two batches count as different: a size that fell short with
#: one may do well with the other.
_ANOTHER_BATCH = math.log(1.5)
#: Seconds after which a save says nothing about the script that runs now, and seconds of the saves
#: that are read if there are any.
_SAVES_SECONDS, _LAST_SAVES_SECONDS = 24 * 3600.0, 3600.0
#: Relative excess of step time over its peers' median above which a rank is a straggler.
_STRAGGLER = 0.2
#: A job leaves a node if the same rank was the slowest, by this much, in each of this number of
#: slices of this length (models.md section 4.4).
_SLOW, _SLOW_SLICES, _SLICE_SECONDS = 0.15, 5, 60.0


def situate(
    tx: Transaction,
    job: Job,
    sight: ThroughputObserved,
    *,
    settings: Settings,
    now: datetime,
    room: Room = room,
    uses: Sequence[WorldUse] = (),
) -> Situation:
    """Return a job's situation for a policy; ``uses`` is the resource use of its replicas so
    far.
    """
    plans, worlds = tx.plans.of(job.id), tx.worlds.of(job.id)
    _, current = standing(plans, job)
    active = tx.plans.active(job.id)
    waits = active is not None and active.state in (PlanState.PROPOSED, PlanState.APPROVED)
    saves = _saves(tx, job, now)
    elapsed = _since(worlds[-1].formed_at if worlds else None, now)
    # Runs of a script that proved to be another one say nothing about this one.
    other = sight.model is not None and bool(sight.model.inherited.refused)
    past = () if other else earlier_runs(tx, job)
    rest = still_to_come(job, sight, worlds, elapsed=elapsed, past=past)
    served = _served(tx, job, sight, current, now, past)
    least, most = others(current.roles), job.document.resource_limits.most(current)
    sizes = tuple(
        n
        for n in job.document.replicas.sizes()
        if n == current.replicas
        or ((not least or (n > least and served is not None)) and (most is None or n <= most))
    )
    if sight.model is not None:
        sight.model.curve([Size(replicas=size) for size in (current.replicas, *sizes)])
    declared, waited = job.document.checkpoint, _data_wait(sight.samples)
    return Situation(
        job=job,
        current=current,
        mode=effective_mode(job, settings),
        active=active,
        obstacle=obstacle(tx, job, active, now, room=room) if active and waits else None,
        present=sight.present,
        model=sight.model,
        unit=sight.unit,
        sizes=sizes,
        room=fitting(tx, job, current, now, room=room),
        telemetry_age_seconds=_age(sight, now),
        stale_after_seconds=stale_after_seconds(next(reversed(sight.samples), None), settings),
        world_age_seconds=_since(sight.world.formed_at if sight.world else None, now),
        checkpointed=bool(saves or declared.path or declared.every or declared.signal),
        in_process=sight.world is not None and sight.world.elastic,
        unsaved_seconds=_since(saves[-1].measured_at, now) if saves else elapsed,
        since_decision_seconds=_away(tx.plans.decision(job.id), now),
        elapsed_seconds=elapsed,
        remaining_seconds=rest.seconds,
        end_known=rest.known,
        remaining_basis=rest.basis,
        limits=limits(replace(job, amounts=current.each), sight, worlds, settings, now),
        not_distributed=not_distributed(tx, job, sight, plans, now),
        straggler=_straggler(sight.samples),
        slow=_slow_node(tx, job, sight, now),
        device_examples=device_examples(sight, uses),
        sharded=sharded_memory(sight, uses),
        data_wait_share=waited,
        save_seconds=save_seconds_per_step(
            sight.samples, saves, since=now - timedelta(seconds=_LAST_SAVES_SECONDS)
        ),
        cpu_share=_cpu(tx, job, sight, waited, now),
        io_stalled_share=_stalled(tx, job, waited, now),
        served=served,
        settings=settings,
        now=now,
        disappointed=_disappointed(plans, sight.model, now),
        **_changes(plans, worlds, settings, now),
    )


def _changes(
    plans: Sequence[ScalePlan], worlds: Sequence[World], settings: Settings, now: datetime
) -> dict[str, Any]:
    """Return the cost of past changes of the world, and the time and outcome of the last ones."""
    downtimes = [
        world.downtime_seconds
        for world in reversed(worlds)
        if world.cause is Cause.PLAN and world.downtime_seconds is not None
    ]
    restart = restart_cost(downtimes, assumed_seconds=settings.restart_seconds)
    changed, lately = changed_at(worlds, plans), _own_changes(plans, now)
    newest = next((plan for plan in plans if reached(plan)), None)
    moved = next((plan for plan in plans if _moved(plan)), None)
    return {
        "restart_seconds": restart.seconds,
        "restarts_measured": restart.measured,
        "since_change_seconds": None if changed is None else _since(changed, now),
        "changes_lately": _turns(lately),
        "since_move_seconds": None if moved is None else _since(moved.updated_at, now),
        "ramping": newest is not None and _grew(newest) and newest.outcome.verdict is Verdict.KEPT,
        "left_lately": frozenset(plan.current.replicas for plan in lately),
    }


def _since(instant: datetime | None, now: datetime) -> float:
    return 0.0 if instant is None else max(0.0, (now - instant).total_seconds())


def _age(sight: ThroughputObserved, now: datetime) -> float | None:
    """Return the seconds since the newest sample, else since the world's first step."""
    stepping_at = sight.world.stepping_at if sight.world else None
    heard = sight.samples[-1].measured_at if sight.samples else stepping_at
    return None if heard is None else _since(heard, now)


def _saves(tx: Transaction, job: Job, now: datetime) -> Sequence[SaveSample]:
    """Return the newest saves; the whole day is only read if the last hour has none."""
    newest = tx.telemetry.saves(job.id, since=now - timedelta(seconds=_LAST_SAVES_SECONDS))
    return newest or tx.telemetry.saves(job.id, since=now - timedelta(seconds=_SAVES_SECONDS))


def _away(decided: Recommendation | None, now: datetime) -> float | None:
    """Return the seconds since the last decision; None if the last decision only
    observed the job after an absence of Brain.
    """
    if decided is None or decided.explanation.code == RETURNED:
        return None
    return _since(decided.decided_at, now)


def _own_changes(plans: Sequence[ScalePlan], now: datetime) -> list[ScalePlan]:
    """Return Brain's own plans that changed the world within the last hour."""
    return [
        plan
        for plan in plans
        if plan.kind in (PlanKind.RESIZE, PlanKind.ROLLBACK, PlanKind.RESTART)
        and plan.proposed_by == BRAIN
        and reached(plan)
        and not plan.in_place
        and _since(plan.updated_at, now) < _LATELY_SECONDS
    ]


def _grew(plan: ScalePlan) -> bool:
    """Return True if a plan was Brain's advice to grow."""
    larger = plan.target.replicas > plan.current.replicas
    return larger and plan.kind is PlanKind.RESIZE and plan.proposed_by == BRAIN


def _moved(plan: ScalePlan) -> bool:
    """Return True if a plan left nodes without giving up replicas, or tried to in vain."""
    tried = plan.only_moves and plan.state is PlanState.FAILED
    before, after = dict(plan.current.nodes), dict(plan.target.nodes)
    left = any(after.get(node, 0) < count for node, count in before.items())
    whole = left and plan.target.replicas >= plan.current.replicas
    return bool(after) and whole and (tried or reached(plan))


def _turns(changes: Sequence[ScalePlan]) -> int:
    """Return the number of changes (newest first) that count as flapping: successive growths
    count once.
    """
    climbed = sum(_grew(one) and _grew(other) for one, other in pairwise(changes))
    return len(changes) - climbed


def _disappointed(
    plans: Sequence[ScalePlan], model: JobModel | None, now: datetime
) -> Mapping[int, int]:
    """Return the sizes that fell short lately at about their present batch, with the fewest
    nodes of each.
    """
    fell = [
        (plan.target.replicas, _nodes_had(plan, model))
        for plan in plans
        if plan.kind is PlanKind.RESIZE
        and plan.state is PlanState.ROLLED_BACK
        and _since(plan.updated_at, now) < _DISAPPOINTED_SECONDS
        and not _at_another_batch(plan, model)
    ]
    return {size: min(n for one, n in fell if one == size) for size in {size for size, _ in fell}}


def _nodes_had(plan: ScalePlan, model: JobModel | None) -> int:
    """Return the nodes over which a plan's world was measured, else those that the plan named.

    Other jobs may have taken a named node by the time at which the world forms.
    """
    had = [
        point.nodes
        for point in (model.points if model else ())
        if point.replicas == plan.target.replicas
        and plan.created_at <= point.until <= plan.updated_at
    ]
    return had[-1] if had else max(1, len(plan.target.nodes))


def _at_another_batch(plan: ScalePlan, model: JobModel | None) -> bool:
    if model is None or plan.target.batch is None:
        return False
    try:
        runs = model.runs(Size(replicas=plan.target.replicas))
    except Undetermined:
        return False
    if runs is None:
        return False
    away = abs(math.log(runs.batch * model.terms.shared / plan.target.batch.global_size))
    return away > _ANOTHER_BATCH


def _straggler(samples: Sequence[ThroughputSample]) -> str | None:
    found = _slowest(samples)
    if found is None:
        return None
    rank, seconds, usual = found
    if seconds <= usual * (1 + _STRAGGLER):
        return None
    return (
        f"rank {rank} needs {duration(seconds)} a step, {change(seconds / usual - 1)} relative to "
        "the median of its peers"
    )


def _slowest(samples: Sequence[ThroughputSample]) -> tuple[int, float, float] | None:
    """Return the slowest rank, its step seconds, and the median of all ranks; None for a single
    rank.
    """
    ranks: dict[int, list[float]] = defaultdict(list)
    for sample in samples:
        if sample.phase is Phase.TRAINING:
            ranks[sample.place.rank].append(sample.step_seconds)
    if len(ranks) < 2:
        return None
    medians = {rank: median(values) for rank, values in ranks.items()}
    slowest = max(medians, key=lambda rank: medians[rank])
    return slowest, medians[slowest], median(medians.values())


def _slow_node(
    tx: Transaction, job: Job, sight: ThroughputObserved, now: datetime
) -> SlowNode | None:
    """Return the node of a rank that was the slowest for minutes while others were elsewhere."""
    world = sight.world
    if world is None or _straggler(sight.samples) is None:
        return None
    long = timedelta(seconds=_SLOW_SLICES * _SLICE_SECONDS)
    samples = tx.telemetry.throughput(job.id, since=now - long, epoch=world.epoch)
    slices: dict[int, list[ThroughputSample]] = defaultdict(list)
    for sample in samples:
        slices[int(_since(sample.measured_at, now) // _SLICE_SECONDS)].append(sample)
    found = [_slowest(some) for some in slices.values()]
    seen = [one for one in found if one is not None and one[1] > one[2] * (1 + _SLOW)]
    if len(seen) < _SLOW_SLICES or len({rank for rank, _, _ in seen}) > 1:
        return None
    replica = {sample.place.rank: sample.place.replica for sample in samples}[seen[0][0]]
    nodes = {member.replica: member.node for member in world.members}
    if replica not in nodes or len(set(nodes.values())) < 2:
        return None
    return SlowNode(node=nodes[replica], factor=min(one[1] / one[2] for one in seen))


def _served(
    tx: Transaction,
    job: Job,
    sight: ThroughputObserved,
    current: Allocation,
    now: datetime,
    past: Sequence[object],
) -> ServedJob | None:
    """Return a job with its parameter servers and their recent use; None if it has none, if a
    server was not read, or if the world has other roles than the standing size.

    The use of workers counts only if no earlier world or run (``past``) may have needed more.
    """
    present, world = sight.present, sight.world
    if PS not in dict(current.roles) or world is None or not isinstance(present, Point):
        return None
    if not alike(roles_in(world.members), current.roles):
        return None
    begun = max(world.formed_at, now - timedelta(seconds=_BUSY_SECONDS))
    raises, first = _raises(tx, job, current), len(tx.worlds.of(job.id)) == 1 and not past
    worker = recent_use(tx, job, now) if raises and first else ReplicaUse()
    read: dict[int, list[int]] = {m.replica: [] for m in world.members if m.role == PS}
    for sample in tx.telemetry.hosts(job.id, since=begun):
        for one in sample.replica_readings:
            if one.replica in read:
                read[one.replica].append(one.cpu_millis)
    if not read or not all(read.values()):
        return None
    used = [sum(some) / len(some) / 1000 for some in read.values()]
    reserved = current.of(PS).cpu_millis / 1000
    try:
        return ServedJob(
            workers=sum(member.role == WORKER for member in world.members),
            steps_per_second=1 / present.step_seconds,
            servers=tuple(ParameterServer(cpus=max(reserved, u), used_cpus=u) for u in used),
            most_cpus=largest_cpus(tx, job, now) if raises else 0.0,
            worker_cpus=(worker.cpu_millis or math.inf) / 1000,
            worker_bytes=worker.memory_bytes or math.inf,
        )
    except Undetermined:
        return None


def _raises(tx: Transaction, job: Job, current: Allocation) -> bool:
    """Return True if a plan of another size may raise the CPU of servers."""
    named = current.of(PS).cpu_millis not in (0, UNSAID.cpu_millis)
    alone = job.document.optimize_mode is not OptimizeMode.CLUSTER
    return named and alone and enforced(tx, job.id, current)


def _data_wait(samples: Sequence[ThroughputSample]) -> float | None:
    training = [sample for sample in samples if sample.phase is Phase.TRAINING]
    total = sum(sample.step_seconds_mean * sample.steps for sample in training)
    waited = sum(sample.data_wait_seconds * sample.steps for sample in training)
    return waited / total if total > 0 else None


def _stalled(tx: Transaction, job: Job, waited: float | None, now: datetime) -> float | None:
    """Return the share of time that processes wait for storage; None if workers do not wait for
    data, or if no collector reads it.
    """
    if (waited or 0) <= 0:
        return None
    hosts = tx.telemetry.hosts(job.id, since=now - timedelta(seconds=_BUSY_SECONDS))
    seen = [host.storage.io_stalled_share for host in hosts if host.storage is not None]
    shares = [share for share in seen if share is not None]
    return median(shares) if shares else None


def _cpu(
    tx: Transaction, job: Job, sight: ThroughputObserved, waited: float | None, now: datetime
) -> float | None:
    """Return the busy share of the nodes' CPUs; None if CPUs train, because busy CPUs then say
    nothing.
    """
    newest = sight.samples[-1] if sight.samples else None
    if newest is None or newest.accelerator == "cpu" or (waited or 0) <= 0:
        return None
    hosts = tx.telemetry.hosts(job.id, since=now - timedelta(seconds=_BUSY_SECONDS))
    shares = [h.cpu_millis / h.cpu_capacity_millis for h in hosts if h.cpu_capacity_millis > 0]
    return median(shares) if shares else None
