"""The desired world (*wish*) of a job, from its present target and the plan being applied."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from zlib import crc32

from brain import wire
from brain.ports import StoredFit, Transaction
from brain.settings import Settings
from brain.types.allocation import Allocation
from brain.types.batch import BatchWish
from brain.types.job import Intent, Job, JobId, JobState, PolicyMode
from brain.types.plan import PlanKind, PlanState, ScalePlan
from brain.types.pool import Freeze, FreezeScope
from brain.types.resources import NodeName, PoolName
from brain.types.roles import alike, others, ranked, roles_in
from brain.types.world import Cause, DesiredWorld, World
from brain.typeset import count

#: Kind of the stored batch that was chosen.
BATCH = "batch/1"
#: Replicas on each node.
Nodes = tuple[tuple[NodeName, int], ...]
#: Kind of the stored nodes of a job's first world.
FIRST_NODES = "first-nodes/1"
#: Kind of the record of the newest replica from before the job's last start.
_EARLIER = "earlier-replica/1"
#: States in which no replica of a job may run.
EMPTY = frozenset({JobState.QUEUED, JobState.SUSPENDED})


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedBatch:
    """The batch size that Brain requests from a script."""

    wish: BatchWish
    at: datetime
    #: The reason, in one sentence.
    reason: str
    #: Size, in replicas, for which the batch is tried; None: the batch is wanted for its own sake.
    trial: int | None = None


def asked_batch(tx: Transaction, job: Job) -> AskedBatch | None:
    """Return the batch size that Brain chose; None if Brain has not chosen a batch size yet."""
    stored = tx.fits.get(job.id, BATCH) if job.document.tunes else None
    return wire.decode(stored.parameters, AskedBatch) if stored else None


def wished_batch(tx: Transaction, job: Job) -> BatchWish | None:
    """Return the batch size that the script should use: Brain's choice, or the declared batch size
    if Brain has not chosen.

    So a script with ``batch.tune`` uses the declared batch size at every job size until Brain
    chooses.
    """
    chosen = asked_batch(tx, job)
    if chosen is not None:
        return chosen.wish
    batch = job.document.batch
    if not job.document.tunes or batch.global_size is None:
        return None
    return BatchWish(
        global_size=batch.global_size, local_most=batch.local_most or batch.global_size
    )


def effective_mode(job: Job, settings: Settings) -> PolicyMode:
    """Return the policy mode of a job: the mode that its document names, else the service's
    default.
    """
    return job.document.policy.mode or PolicyMode(settings.policy_mode)


def may_act(job: Job, settings: Settings) -> bool:
    """Return True if Brain may approve its own plans for this job."""
    return effective_mode(job, settings) is PolicyMode.AUTO and job.advise_only is None


def beyond_bounds(job: Job, plan: ScalePlan) -> str:
    """Return a clause about a plan that the job's bounds or limits do not allow; empty if they
    allow it.

    Owners may lower the bounds of a running job after a plan was made.
    """
    bounds, current, target = job.document.replicas, plan.current, plan.target
    if target.replicas != current.replicas and not bounds.allow(target.replicas):
        asked = count(target.replicas, "replica")
        return f"the job's bounds are now {bounds.min}:{bounds.max} and do not allow {asked}"
    changes = (target.replicas, target.resources, target.roles) != (
        current.replicas,
        current.resources,
        current.roles,
    )
    found = job.document.resource_limits.excess(target) if changes else None
    return found[1] if found else ""


def frozen(tx: Transaction, job: Job) -> Freeze | None:
    """Return the freeze that applies to a job; None if plans may be applied.

    If several freezes apply, the result is the one with the widest scope.
    """
    return _freeze(tx, job.id, job.document.project)


def _freeze(tx: Transaction, job: JobId, project: str) -> Freeze | None:
    covers = {FreezeScope.ALL: "", FreezeScope.PROJECT: project, FreezeScope.JOB: job}
    freezes = {(freeze.scope, freeze.target): freeze for freeze in tx.freezes.all()}
    found = [freezes[key] for key in covers.items() if key in freezes]
    return found[0] if found else None


def freeze_reason(job: Job, freeze: Freeze) -> str:
    """Return a sentence that says who froze a job and why, and how to end the freeze."""
    covered = {
        FreezeScope.ALL: "--all",
        FreezeScope.PROJECT: f"--project {freeze.target}",
        FreezeScope.JOB: job.document.name,
    }
    why = f": {freeze.why}" if freeze.why else ""
    return f"frozen by {freeze.by}{why} (`brain freeze --off {covered[freeze.scope]}` lifts it)"


def reached(plan: ScalePlan) -> bool:
    """Return True if a world has met the plan's target."""
    return plan.reached


def standing(plans: Sequence[ScalePlan], job: Job) -> tuple[int, Allocation]:
    """Return the present generation and target: the highest generation whose target a world has
    met.

    Generation 0 is the submitted document. The target's ``resources`` are read from the stored job,
    because ``settle`` stores the amounts of an applied plan there.
    """
    met = max((plan for plan in plans if reached(plan)), key=_generation, default=None)
    if met is None:
        return 0, replace(job.document.allocation, resources=job.resources)
    return met.generation, replace(met.target, resources=job.resources)


def wished(plans: Sequence[ScalePlan], job: Job) -> tuple[int, Allocation]:
    """Return the generation and target of the desired world.

    Both are those of the plan that is being applied; if no plan is being applied, they are the
    present ones.
    """
    applying = next((plan for plan in plans if plan.state is PlanState.APPLYING), None)
    if applying is None:
        return standing(plans, job)
    changed = applying.target.resources if applying.changes_resources else job.resources
    return applying.generation, replace(applying.target, resources=changed)


def begin_on(tx: Transaction, job: Job, nodes: Nodes, now: datetime) -> None:
    """Store the nodes on which a job's first world should run; if ``nodes`` is empty, every node is
    allowed.
    """
    if nodes or tx.fits.get(job.id, FIRST_NODES) is not None:
        kept = wire.encode(nodes).decode()
        tx.fits.put(StoredFit(job=job.id, kind=FIRST_NODES, parameters=kept, fitted_at=now))


def note_earlier_replicas(tx: Transaction, job: Job, now: datetime) -> None:
    """Store, when a job starts, the replicas that it had before, for ``is_earlier``."""
    newest = max((replica.id for replica in tx.worlds.replicas(job.id)), default=None)
    if newest is not None:
        kept = StoredFit(job=job.id, kind=_EARLIER, parameters=str(newest), fitted_at=now)
        tx.fits.put(kept)


def is_earlier(tx: Transaction, job: Job, replica: int) -> bool:
    """Return True if a replica is from before the job's last start, for example from before a
    suspension.

    Ids of replicas rise, so the newest id known at the start divides them.
    """
    noted = tx.fits.get(job.id, _EARLIER)
    return noted is not None and replica <= int(noted.parameters)


def wished_nodes(tx: Transaction, job: Job, generation: int, target: Allocation) -> Nodes:
    """Return the nodes of the desired world; empty if any node will do.

    They are the nodes that the plan names, or the nodes on which the job begins.
    """
    if generation or job.state in EMPTY:
        return target.nodes
    stored = tx.fits.get(job.id, FIRST_NODES)
    return () if stored is None else wire.decode(stored.parameters, Nodes)


def wish(tx: Transaction, job: Job, settings: Settings) -> DesiredWorld:
    """Return the desired world of a job.

    The upper bits of ``version`` count the stored changes of the job and its plans, so they only
    grow; the lower sixteen distinguish inputs that are stored elsewhere (freezes, settings). Two
    desired worlds of one job are equal if and only if their versions are equal.
    """
    plans = tx.plans.effective(job.id)
    generation, target = wished(plans, job)
    restarts = [plan for plan in plans if plan.kind is PlanKind.RESTART]
    document, empty = job.document, job.finished or job.state in EMPTY
    replicas = 0 if empty or job.intent is not Intent.RUN else target.replicas
    is_frozen = frozen(tx, job) is not None
    changes = job.version + tx.plans.changes(job.id)
    return DesiredWorld(
        job=job.id,
        generation=generation,
        version=_version(changes, is_frozen, settings),
        intent=job.intent,
        replicas=replicas,
        processes_per_replica=target.processes_per_replica,
        unit=document.replicas.unit,
        minimum=max(document.replicas.min, others(ranked(target.roles)) + 1),
        patience_seconds=settings.patience_seconds,
        frozen=is_frozen,
        restart_limit=document.restarts.limit,
        nodes=wished_nodes(tx, job, generation, target) if replicas else (),
        batch=wished_batch(tx, job) if replicas else None,
        resources=None if target.resources == document.resources else target.resources,
        roles=target.roles,
        anew=any(plan.state is PlanState.APPLYING for plan in restarts),
    )


def wish_versions(
    tx: Transaction, pool: PoolName, settings: Settings
) -> Sequence[tuple[JobId, JobState, int]]:
    """Return each unfinished job of a pool with its state and the version of its desired world,
    oldest first; no job, plan or fit is read.
    """
    return [
        (
            one.job,
            one.state,
            _version(one.changes, _freeze(tx, one.job, one.project) is not None, settings),
        )
        for one in tx.plans.changes_in(pool)
    ]


def _version(changes: int, is_frozen: bool, settings: Settings) -> int:
    elsewhere = f"{is_frozen} {settings.patience_seconds}".encode()
    return changes << 16 | crc32(elsewhere) & 0xFFFF


def meets(world: World | None, target: Allocation) -> bool:
    """Return True if the observed world has the size ``target`` and makes steps."""
    return (
        world is not None
        and world.stepping_at is not None
        and world.ended_at is None
        and (world.replicas, world.processes) == (target.replicas, target.processes)
        and alike(roles_in(world.members), target.roles)
    )


def begun_anew(world: World, plan: ScalePlan) -> bool:
    """Return True if ``world`` was formed for a restart plan, and did not re-form after a loss."""
    return world.generation >= plan.generation and world.cause is Cause.PLAN


def moved(world: World, target: Allocation) -> bool:
    """Return True if the world runs on the nodes that ``target`` names, or if ``target`` names no
    nodes.
    """
    found = Counter(member.node for member in world.members)
    return not target.nodes or found == Counter(dict(target.nodes))


def changed_at(worlds: Sequence[World], plans: Sequence[ScalePlan]) -> datetime | None:
    """Return the time of the last plan that changed the job's world; None if there was none."""
    epochs = {plan.outcome.epoch for plan in plans if reached(plan) and not plan.in_place}
    return max((w.stepping_at or w.formed_at for w in worlds if w.epoch in epochs), default=None)


def _generation(plan: ScalePlan) -> int:
    return plan.generation
