"""A small fleet with a past, as its programs would have reported it, written through the stores."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from brain.ports import Stores, Transaction
from brain.types.allocation import Allocation, Bounds
from brain.types.diagnosis import Attachment, Diagnosis, FailureKind
from brain.types.explanation import Alternative, Evidence, Explanation
from brain.types.job import (
    ApprovalPolicy,
    Checkpoint,
    Job,
    JobDocument,
    JobId,
    JobState,
    ObjectCondition,
    PolicyMode,
)
from brain.types.plan import Approval, Outcome, PlanKind, PlanState, ScalePlan, Verdict
from brain.types.recommendation import Prediction, Recommendation
from brain.types.record import AuditEntry, Event
from brain.types.resources import Node, NodeName, PoolName, Resources
from brain.types.sharing import (
    JobShare,
    PoolRound,
    PoolShares,
    ProjectShare,
    Rival,
    StoredPolicy,
)
from brain.types.world import Cause, Member, Replica, ReplicaState, World
from tests.builders import plan
from tests.web.measured import AHEAD, NODE, RATE, machine_of, steps_of

LOCAL = PoolName("local")

DIGITS, TINY, RANKS, VOLUME, WAVES, OLD, BROKEN, STUCK = (
    JobId(f"0197f000-0000-7000-8000-00000000000{number}") for number in range(1, 9)
)


def fleet(stores: Stores, now: datetime) -> None:
    """Store eight jobs and two nodes; another Brain holds the pool, so nothing moves by itself."""
    with stores.transaction() as tx:
        tx.leases.acquire(LOCAL, "elsewhere", until=now + timedelta(hours=6), now=now)
        _nodes(tx, now)
        _digits(tx, now)
        _silent(tx, now)
        _straggling(tx, now)
        _hung(tx, now)
        _held(tx, now)
        _queued(tx, now)
        _ended(tx, now)
        _divided(tx, now)


def propose(
    stores: Stores,
    now: datetime,
    *,
    generation: int,
    replicas: int = 3,
    promised: Prediction | None = None,
) -> None:
    """Store a proposal for the job digits, and the event that tells of it."""
    with stores.transaction() as tx:
        plan = _proposal(generation, replicas, now)
        tx.plans.add(replace(plan, promised=promised or plan.promised))
        event(tx, "plan.Proposed", f"generation {generation}: 2 → {replicas}", now, generation)


def judge(stores: Stores, now: datetime) -> None:
    """Give the job ranker three plans within minutes: kept, inconclusive, fell short and stands."""
    outcomes = ((Verdict.KEPT, 2), (Verdict.INCONCLUSIVE, 3), (Verdict.FELL_SHORT, 4))
    with stores.transaction() as tx:
        for generation, (verdict, size) in enumerate(outcomes, start=1):
            when = now - timedelta(minutes=25 - generation)
            reason = f"{size} replicas are predicted to do more."
            promised = promise(RATE[size] * (1.3 if verdict is Verdict.FELL_SHORT else 1), 60)
            plan = measured_plan(
                generation,
                size - 1,
                size,
                when,
                PlanState.VERIFIED,
                promised,
                now,
                measured=RATE[size],
                verdict=verdict,
                epoch=1,
                reason=reason,
                kind=PlanKind.REQUEST,
            )
            outcome = plan.outcome
            if verdict is Verdict.INCONCLUSIVE:
                outcome = replace(outcome, measured=None)
            tx.plans.add(replace(plan, job=RANKS, outcome=outcome))
            message, data = f"{verdict}: as measured", {"verdict": str(verdict)}
            tx.events.add(
                Event(
                    at=when,
                    kind="plan.Verified",
                    job=RANKS,
                    subject=generation,
                    message=message,
                    data=data,
                )
            )


def supersede(stores: Stores, now: datetime, *, generation: int) -> None:
    """Let the proposal pass, as a newer decision does."""
    with stores.transaction() as tx:
        plan = tx.plans.get(DIGITS, generation)
        tx.plans.put(plan.moved(PlanState.SUPERSEDED, now))
        event(tx, "plan.Superseded", "a newer plan came", now, generation)


def expired(stores: Stores, *, above: int, count: int) -> None:
    """So many expired plans of digits, which came after the generation ``above``."""
    with stores.transaction() as tx:
        for generation in range(above + 1, above + 1 + count):
            tx.plans.add(plan(generation, job=DIGITS, state=PlanState.EXPIRED))


def advise_only(stores: Stores, why: str) -> None:
    """Let Brain only advise on the job volume-seg."""
    with stores.transaction() as tx:
        tx.jobs.put(replace(tx.jobs.get(VOLUME), advise_only=why))


def settle(stores: Stores, now: datetime) -> None:
    """Let the job digits run, whatever an approved plan began to change."""
    with stores.transaction() as tx:
        found = tx.jobs.get(DIGITS)
        if found.state is not JobState.RUNNING:
            tx.jobs.put(found.moved(JobState.RUNNING, "stepping", now))


def event(tx: Transaction, kind: str, message: str, at: datetime, subject: int) -> None:
    """Write an event of the job digits."""
    tx.events.add(Event(at=at, kind=kind, job=DIGITS, subject=subject, message=message))


def job(id: JobId, name: str, now: datetime, state: JobState, **fields: Any) -> Job:
    """A job that began an hour ago, with a document of one to four replicas of one core."""
    document: dict[str, Any] = {
        "command": ("python", "examples/digits.py", "--seconds", "7200"),
        "replicas": Bounds(min=1, max=4),
        "resources": Resources(cpu_millis=1000, memory_bytes=2 << 30),
        "checkpoint": Checkpoint(path="runs/digits.pt"),
    } | fields.pop("document", {})
    made: dict[str, Any] = {
        "owner": "ada",
        "created_at": now - timedelta(minutes=64),
        "updated_at": now,
    }
    return Job(
        id=id,
        document=JobDocument(name=name, **document),
        pool=LOCAL,
        state=state,
        **(made | fields),
    )


def _nodes(tx: Transaction, now: datetime) -> None:
    capacity = Resources(cpu_millis=8000, memory_bytes=32 << 30)
    tx.nodes.put(Node(name=NODE, pool=LOCAL, capacity=capacity, seen_at=now + timedelta(hours=6)))
    silent = now - timedelta(minutes=4)
    tx.nodes.put(Node(name=NodeName("workbench"), pool=LOCAL, capacity=capacity, seen_at=silent))


def _digits(tx: Transaction, now: datetime) -> None:
    """One replica, then two (kept), then four (fell short), two again; three are proposed."""
    document = {"steps": 40_000, "policy": ApprovalPolicy(mode=PolicyMode.APPROVE)}
    tx.jobs.add(job(DIGITS, "digits", now, JobState.RUNNING, reason="stepping", document=document))
    ago = [timedelta(minutes=minutes) for minutes in (58, 44, 26, 20)]
    sizes = (1, 2, 4, 2)
    for epoch, (since, size) in enumerate(zip(ago, sizes, strict=True), start=1):
        until = ago[epoch] if epoch < len(ago) else timedelta(0)
        begin, end = now - since, now - until
        tx.worlds.put(_world(epoch, size, begin, None if epoch == len(ago) else end))
        last = end if until else now + AHEAD
        steps_of(tx, DIGITS, epoch, size, begin + timedelta(seconds=8), last, now)
    tx.worlds.put_replicas(DIGITS, [_replica(number, now - ago[1]) for number in range(2)])
    machine_of(tx, DIGITS, now - ago[0], now, sizes, ago)
    for plan in _past(now, ago):
        tx.plans.add(plan)
    tx.plans.add(_proposal(4, 3, now - timedelta(minutes=11)))
    tx.plans.decide(DIGITS, _advice(now))
    for minutes, kind, subject, message in _STORY:
        event(tx, kind, message, now - timedelta(minutes=minutes), subject)
    tx.audit.add(
        AuditEntry(
            at=now - timedelta(minutes=45),
            actor="ada",
            action="approve",
            target=f"plan/{DIGITS}/1",
            before="Proposed",
            after="Approved",
        )
    )


_STORY = (
    (64, "job.Queued", 0, "submitted by ada"),
    (58, "world.formed", 1, "1 worker on laptop"),
    (45, "plan.Approved", 1, "approved by ada"),
    (44, "plan.Applied", 1, "a world of 2 replicas stepped 8 s after the last step of the old one"),
    (41, "plan.Verified", 1, "kept: 968 of 960 examples/s"),
    (26, "plan.Applied", 2, "a world of 4 replicas stepped"),
    (21, "plan.RolledBack", 2, "fell short: 1 405 of 1 810 examples/s"),
    (20, "plan.Applied", 3, "2 replicas again"),
    (11, "plan.Proposed", 4, "generation 4: 2 → 3"),
)


def _past(now: datetime, ago: list[timedelta]) -> Iterator[ScalePlan]:
    yield measured_plan(
        1,
        1,
        2,
        now - ago[1],
        PlanState.VERIFIED,
        promise(960, 60, exploring=True),
        now,
        measured=RATE[2],
        verdict=Verdict.KEPT,
        epoch=2,
        reason=(
            "A second replica is predicted to do 1.88 times as much as one, for 8 s of restart."
        ),
    )
    yield measured_plan(
        2,
        2,
        4,
        now - ago[2],
        PlanState.ROLLED_BACK,
        promise(1810, 90, exploring=True),
        now,
        measured=RATE[4],
        verdict=Verdict.FELL_SHORT,
        epoch=3,
        reason=("Four replicas are predicted to do 1.87 times as much as two, exploring."),
        detail="Measured 1 405 of 1 810 examples/s promised; going back to 2 replicas.",
    )
    yield measured_plan(
        3,
        4,
        2,
        now - ago[3],
        PlanState.VERIFIED,
        None,
        now,
        kind=PlanKind.ROLLBACK,
        measured=RATE[2],
        verdict=Verdict.KEPT,
        epoch=4,
        reason=("Generation 2 fell short: 1 405 of 1 810 examples/s, so back to 2 replicas."),
    )


def measured_plan(
    generation: int,
    current: int,
    target: int,
    at: datetime,
    state: PlanState,
    promised: Prediction | None,
    now: datetime,
    *,
    measured: float,
    verdict: Verdict,
    epoch: int,
    reason: str,
    detail: str = "",
    kind: PlanKind = PlanKind.RESIZE,
) -> ScalePlan:
    return ScalePlan(
        job=DIGITS,
        generation=generation,
        kind=kind,
        state=state,
        current=Allocation(replicas=current),
        target=Allocation(replicas=target),
        measured=promise(RATE[current], 8),
        promised=promised,
        restart_seconds=8.0,
        payback_seconds=17.0,
        explanation=Explanation(code="scales-well", reason=reason, next_step="Verified."),
        approval=Approval(by="ada", at=at),
        outcome=Outcome(
            epoch=epoch,
            downtime_seconds=8.2,
            steps_redone=3,
            measured=promise(measured, 9),
            verdict=verdict,
            detail=detail,
        ),
        created_at=at - timedelta(minutes=1),
        updated_at=at + timedelta(minutes=3),
        expires_at=at + timedelta(hours=1),
    )


def _proposal(generation: int, replicas: int, at: datetime) -> ScalePlan:
    advice = _advice(at)
    return ScalePlan(
        job=DIGITS,
        generation=generation,
        kind=PlanKind.RESIZE,
        current=Allocation(replicas=2),
        target=Allocation(replicas=replicas),
        measured=advice.measured,
        promised=advice.predicted,
        restart_seconds=8.2,
        payback_seconds=29.0,
        explanation=advice.explanation,
        created_at=at,
        updated_at=at,
        expires_at=at + timedelta(hours=1),
    )


def _advice(now: datetime) -> Recommendation:
    return Recommendation(
        current=Allocation(replicas=2),
        target=Allocation(replicas=3),
        measured=promise(RATE[2], 9),
        predicted=promise(RATE[3], 64, exploring=True),
        restart_seconds=8.2,
        payback_seconds=29.0,
        explanation=Explanation(
            code="scales-well",
            reason="A third replica adds 42 % to 968 examples/s, and one core of laptop is free.",
            evidence=(
                Evidence(label="Measured at 2, 231 windows", value="968 ± 0.9 % examples/s"),
                Evidence(
                    label="rests on",
                    value="231 steps measured at 2 replicas, fixed global batch; "
                    "4 configurations measured by 3 earlier runs (mon, tue, wed)",
                ),
                Evidence(label="Data wait, the same at 1 and 2", value="4 % of the step"),
                Evidence(label="Cost of a restart, 3 seen", value="8.2 s"),
            ),
            alternatives=(
                Alternative(replicas=2, gain=0.0, why_not="staying would forgo a gain of 42 %"),
                Alternative(replicas=4, gain=0.45, why_not="measured: the fourth adds 3 %"),
            ),
            confidence=0.91,
            next_step="Approve or reject the plan; once it is applied, Brain verifies it by measuring.",
        ),
        decided_at=now,
    )


def promise(value: float, half: float, *, exploring: bool = False) -> Prediction:
    """A throughput with a symmetric interval."""
    return Prediction(
        examples_per_second=value, low=value - half, high=value + half, exploring=exploring
    )


def _world(epoch: int, replicas: int, at: datetime, end: datetime | None) -> World:
    members = tuple(
        Member(replica=rank, group_rank=rank, processes=1, node=NODE, address="127.0.0.1:5000")
        for rank in range(replicas)
    )
    return World(
        job=DIGITS,
        epoch=epoch,
        generation=epoch - 1,
        cause=Cause.START if epoch == 1 else Cause.PLAN,
        members=members,
        formed_at=at,
        stepping_at=at + timedelta(seconds=8),
        ended_at=end,
        downtime_seconds=(None, 8.2, 8.4, 0.094)[epoch - 1],
        steps_redone=(None, 3, 3, 0)[epoch - 1],
    )


def _replica(number: int, at: datetime) -> Replica:
    return Replica(id=number, node=NODE, state=ReplicaState.RUNNING, generation=1, started_at=at)


def _silent(tx: Transaction, now: datetime) -> None:
    tx.jobs.add(job(TINY, "tiny-lm", now, JobState.RUNNING, reason="stepping", owner="grace"))
    begin, end = now - timedelta(minutes=40), now - timedelta(minutes=4)
    tx.worlds.put(other_world(TINY, 1, begin))
    steps_of(tx, TINY, 1, 1, begin, end, now)
    _hold(
        tx, TINY, now, "stale-telemetry",
        "The newest sample is 240 s old, the limit is 60 s: the world stays as it was.",
        "Brain decides again once samples come in; `brain doctor` says what is missing.",
    )  # fmt: skip


def _straggling(tx: Transaction, now: datetime) -> None:
    four = {"replicas": Bounds(min=1, max=4, start=4)}
    tx.jobs.add(job(RANKS, "ranker", now, JobState.RUNNING, reason="stepping", document=four))
    begin = now - timedelta(minutes=30)
    tx.worlds.put(other_world(RANKS, 4, begin))
    sick = replace(
        _replica(7, begin), node=NodeName("workbench"), state=ReplicaState.EXITED,
        ended_at=now, unfit="an accelerator failed (Xid 79): it fell off the bus",
    )  # fmt: skip
    tx.worlds.put_replicas(RANKS, [sick])
    steps_of(tx, RANKS, 1, 4, begin, now + AHEAD, now, slow={2: 1.3})
    _hold(
        tx, RANKS, now, "straggler",
        "Rank 2 is 30 % slower than its peers; more replicas would wait for it too.",
        "Look at laptop: what else runs there?",
    )  # fmt: skip


def _hung(tx: Transaction, now: datetime) -> None:
    """A job of another project, in which rank 1 is waited for."""
    document = {"project": "speech", "replicas": Bounds(min=1, max=4, start=2)}
    tx.jobs.add(job(STUCK, "asr-net", now, JobState.RUNNING, reason="stepping", document=document))
    begin, end = now - timedelta(minutes=40), now - timedelta(minutes=6)
    found = Diagnosis(
        kind=FailureKind.HANG,
        sentence="no worker moves; rank 1 is the one that the others wait for",
        rank=1,
        attachments=(Attachment(name="stacks of rank 1", text='File "queue.py" in get'),),
    )
    tx.worlds.put(replace(other_world(STUCK, 2, begin), diagnosis=found))
    steps_of(tx, STUCK, 1, 2, begin, end, now)


def _held(tx: Transaction, now: datetime) -> None:
    tx.jobs.add(job(VOLUME, "volume-seg", now, JobState.RUNNING, reason="stepping"))
    begin = now - timedelta(minutes=25)
    tx.worlds.put(other_world(VOLUME, 1, begin))
    steps_of(tx, VOLUME, 1, 1, begin, now + AHEAD, now)
    _hold(
        tx, VOLUME, now, "no-checkpoint",
        "I will not resize this job: no checkpoint was seen, it would lose 25 minutes.",
        "Let the script save, or declare `checkpoint: {path}` in its document.",
    )  # fmt: skip


def _queued(tx: Transaction, now: datetime) -> None:
    why = "needs 4 cores; 1 of 8 is free on laptop"
    never = ObjectCondition(
        type="Feasible", status=False, reason="NeverFits", message="no node has 9 GPUs", since=now
    )
    taken = ObjectCondition(type="Accepted", status=True, reason="Valid", since=now)
    queued = job(WAVES, "wave-net", now, JobState.QUEUED, reason=why, owner="grace")
    tx.jobs.add(replace(queued, conditions=(taken, never)))


def _ended(tx: Transaction, now: datetime) -> None:
    end = now - timedelta(hours=2)
    old = {"created_at": end - timedelta(hours=1), "updated_at": end, "finished_at": end}
    done = "all workers ended with exit code 0"
    tx.jobs.add(job(OLD, "digits-old", now, JobState.SUCCEEDED, reason=done, exit_code=0, **old))
    why = "replica 1 ended with exit code 137, out of memory; restart limit of 10 reached"
    tx.jobs.add(
        job(BROKEN, "pose-net", now, JobState.FAILED, reason=why, exit_code=137, failures=11, **old)
    )
    found = Diagnosis(
        kind=FailureKind.MEMORY,
        sentence="rank 1 exited with code 137 (SIGKILL); it failed first, on workbench at step 410: the "
        "machine or its control group ran out of memory",
        rank=1,
        evidence=(Evidence(label="the kernel's count", value="out-of-memory kills in its control group since the worker started: 1"),),
        next_step="the job ends: the workers failed 11 times, but only 10 restarts are allowed",
        attachments=(Attachment(name="stacks of rank 1", text='File "train.py", line 7 in step'),),
    )
    world = replace(other_world(BROKEN, 2, end - timedelta(hours=1)), ended_at=end)
    tx.worlds.put(replace(world, diagnosis=found))


def _divided(tx: Transaction, now: datetime) -> None:
    """A round in which one job has what another might have had, and a project lacks something."""
    shares = (
        share(
            DIGITS, "digits", 2, "keeps", lost_to="ranker",
            reason="968 examples/s with 2 replicas; 3 would make 1.42× of that, but ranker gains "
            "more from them",
        ),
        share(RANKS, "ranker", 4, "keeps", reason="it has all that it may have"),
        share(WAVES, "wave-net", 0, "waits", reason="waits for 4 cores; none is worth less"),
    )  # fmt: skip
    tx.pools.put_policy(
        StoredPolicy(
            pool=LOCAL,
            policy=PoolShares(projects={"vision": ProjectShare(guaranteed=2, limit=6)}),
            by="ada",
            updated_at=now,
            version=0,
        )
    )
    tx.pools.put_round(
        PoolRound(
            pool=LOCAL,
            decided_at=now - timedelta(seconds=40),
            units={"cpu": "core"},
            value=1.498,
            bound=1.5,
            prices={"cpu": 0.0392},
            capacity={"cpu": 8.0},
            used={"cpu": 6.0},
            short={"vision": 2.0},
            shares=shares,
        )
    )


def share(
    id: JobId, name: str, replicas: int, outcome: str, *, reason: str, lost_to: str | None = None
) -> JobShare:
    """What a job got from a round."""
    rival = Rival(accelerator="cpu", replicas=replicas + 1, gain=0.017, cost=0.039)
    return JobShare(
        job=id,
        name=name,
        project="default",
        outcome=outcome,
        accelerator="cpu",
        before=replicas,
        replicas=replicas,
        nodes=((NODE, replicas),),
        next_best=rival,
        lost_to=lost_to,
        reason=reason,
    )


def other_world(id: JobId, replicas: int, at: datetime) -> World:
    """The first world of a job, all on one machine."""
    members = tuple(
        Member(replica=rank, group_rank=rank, processes=1, node=NODE, address="127.0.0.1:5001")
        for rank in range(replicas)
    )
    return World(
        job=id, epoch=1, generation=0, cause=Cause.START, members=members, formed_at=at,
        stepping_at=at,
    )  # fmt: skip


def _hold(tx: Transaction, id: JobId, now: datetime, code: str, why: str, then: str) -> None:
    size = Allocation(replicas=len(_members(tx, id)))
    tx.plans.decide(
        id,
        Recommendation(
            current=size,
            target=size,
            measured=promise(RATE[size.replicas], 9),
            explanation=Explanation(code=code, reason=why, next_step=then),
            decided_at=now - timedelta(minutes=3),
        ),
    )


def _members(tx: Transaction, id: JobId) -> tuple[Member, ...]:
    world = tx.worlds.latest(id)
    return world.members if world else ()
