"""Reports of scalers about replicas, and the resulting changes of the job.

Reports may be repeated or late: the exit of a replica is final, and is handled once.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from brain.lifecycle.desired import is_earlier, wished
from brain.lifecycle.jobs import end, stopped
from brain.lifecycle.records import happened, move_job
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.job import Intent, Job, JobId, JobState
from brain.types.world import Replica, ReplicaExit, ReplicaReport, ReplicaState
from brain.typeset import count

#: Exits that may end the job.
_FINAL = frozenset({ReplicaExit.SUCCEEDED, ReplicaExit.FAILED})
#: How a replica ended that was not lost, for the reason of a job that has none left.
_HOW: dict[ReplicaExit | None, str] = {
    ReplicaExit.CANCELLED: "never began",
    ReplicaExit.LEFT: "left",
}


def replicas_reported(
    tx: Transaction, report: ReplicaReport, *, settings: Settings, now: datetime
) -> Job:
    """Apply a scaler's report, and return the updated job. The exit of a replica is final.

    Raises:
        UnknownJob: the job does not exist.
    """
    job = tx.jobs.get(report.job)
    known = {(r.role, r.id): r for r in tx.worlds.replicas(job.id)}
    news = [r for r in report.replicas if _newer(known.get((r.role, r.id)), r)]
    for replica in news:
        _tell(tx, job.id, known.get((replica.role, replica.id)), replica, now)
    tx.worlds.put_replicas(job.id, news)
    if job.finished:
        return job
    everything = tx.worlds.replicas(job.id)
    gone = _members(tx, everything, job.id)
    if any(replica.state is not ReplicaState.EXITED for replica in gone):
        return _waiting(tx, job, report.waiting, everything, now)
    if job.state is JobState.SUSPENDED:  # replicas may end after their world
        return job
    if job.intent is not Intent.RUN:
        _end_world(tx, job.id, now)
        return stopped(tx, job, now)
    if any(replica.state is ReplicaState.EXITED for replica in news):
        return _all_gone(tx, job, gone, everything, now)
    return _waiting(tx, job, report.waiting, everything, now)


def _newer(known: Replica | None, replica: Replica) -> bool:
    if known is None:
        return True
    return known.state is not ReplicaState.EXITED and known != replica


def _tell(
    tx: Transaction, job: JobId, known: Replica | None, replica: Replica, now: datetime
) -> None:
    if known is not None and known.state is replica.state:
        return
    how = f" ({replica.exit})" if replica.exit else ""
    detail = f": {replica.detail}" if replica.detail else ""
    message = f"replica {replica.id} {replica.state}{how} on {replica.node}{detail}"
    happened(tx, f"replica.{replica.state}", message, job=job, now=now, subject=replica.id)


def _waiting(
    tx: Transaction, job: Job, waiting: str | None, replicas: Sequence[Replica], now: datetime
) -> Job:
    if waiting and job.state in (JobState.STARTING, JobState.DEGRADED):
        return move_job(tx, job, job.state, waiting, now)
    alive = sum(replica.state is not ReplicaState.EXITED for replica in replicas)
    _, target = wished(tx.plans.effective(job.id), job)
    if job.state is JobState.STARTING and alive >= target.replicas:
        # No earlier reason holds any more: neither a lack of room nor a refusal.
        verbs = ("exists", "has") if alive == 1 else ("exist", "have")
        why = f"{count(alive, 'replica')} {verbs[0]}, and {verbs[1]} not formed a world yet"
        return move_job(tx, job, job.state, why, now)
    return job


def _all_gone(
    tx: Transaction,
    job: Job,
    replicas: Sequence[Replica],
    everything: Sequence[Replica],
    now: datetime,
) -> Job:
    """Settle a job that should run but has lost all its replicas, by the exit of the last replica.

    The coordinator may have died before it could report. A world that it reported as ended is not
    counted twice, because later reports of an ended world change nothing. A replica from before a
    suspension can end the resumed job only by its success.
    """
    last = max(
        replicas,
        key=lambda r: (not is_earlier(tx, job, r.id), r.ended_at or r.started_at, r.id),
    )
    if last.exit not in _FINAL:
        last = _final(tx, job, everything) or last
    was_alive = _end_world(tx, job.id, now)
    if last.exit is ReplicaExit.SUCCEEDED:
        return end(
            tx, job, JobState.SUCCEEDED, "all workers ended with exit code 0", now, exit_code=0
        )
    # The job was resumed before the ends of its replicas were reported.
    if job.state is JobState.QUEUED or is_earlier(tx, job, last.id):
        return job
    if last.exit is ReplicaExit.FAILED:
        why = last.detail or "its last replica failed"
        return end(tx, job, JobState.FAILED, why, now, exit_code=last.exit_code)
    failures = job.failures + was_alive
    limit = job.document.restarts.limit
    if failures > limit:
        why = (
            f"the job lost its replicas {failures} times, more often than restarts.limit {limit} "
            "allows"
        )
        job = move_job(tx, job, job.state, job.reason, now, failures=failures)
        return end(tx, job, JobState.FAILED, why, now)
    state = job.state if job.state is JobState.STARTING else JobState.DEGRADED
    how = _HOW.get(last.exit, "was lost")
    why = f"replica {last.id} {how}; another one starts from the checkpoint"
    return move_job(tx, job, state, why, now, failures=failures)


def _final(tx: Transaction, job: Job, replicas: Sequence[Replica]) -> Replica | None:
    """Return the replica after whose exit the scaler starts no other; None if another may start.

    The replica that ended last need not be this one, because kubelets write whole seconds, and a
    replica that a plan replaced may end after its replacement.
    """
    if any(replica.state is not ReplicaState.EXITED for replica in replicas):
        return None
    generation, _ = wished(tx.plans.effective(job.id), job)
    for replica in sorted(replicas, key=lambda each: each.id, reverse=True):
        failed = replica.exit is ReplicaExit.FAILED and replica.generation >= generation
        if (
            failed and not is_earlier(tx, job, replica.id)
        ) or replica.exit is ReplicaExit.SUCCEEDED:
            return replica
    return None


def _members(tx: Transaction, replicas: Sequence[Replica], job: JobId) -> Sequence[Replica]:
    """Return the replicas of the running world; all replicas if none runs.

    One report may contain both the loss of a replica and its replacement; the lost replica still
    counts as lost.
    """
    world = tx.worlds.latest(job)
    if world is None or world.ended_at is not None:
        return replicas
    ids = {member.replica for member in world.members}
    return [replica for replica in replicas if replica.id in ids] or replicas


def _end_world(tx: Transaction, job: JobId, now: datetime) -> bool:
    world = tx.worlds.latest(job)
    if world is None or world.ended_at is not None:
        return False
    tx.worlds.put(replace(world, ended_at=now))
    return True
