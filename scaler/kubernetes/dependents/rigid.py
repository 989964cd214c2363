"""Derives worlds from pods, for jobs that run without Brain's agent. All functions are pure.

The size of such a job is fixed while its pods exist, because each pod got the number of pods when
it started. So a plan replaces all pods. The steps that such a world makes, repeats or loses are
unknown.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime

from brain.errors import BadInput
from brain.types.job import JobId
from brain.types.resources import NodeName
from brain.types.world import Cause, Member, World, WorldEvent, WorldReport
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.pods import identity
from scaler.kubernetes.pods.orders import Installation, elastic
from scaler.kubernetes.runtime.cluster.kind import Object
from scaler.ports import ReplicaPhase, ReplicaSeen

log = logging.getLogger(__name__)

_UNKNOWN = NodeName("")


def running(seen: Sequence[ReplicaSeen]) -> tuple[int, ...]:
    return tuple(
        each.id for each in seen if each.phase is ReplicaPhase.RUNNING and not each.leaving
    )


def held(world: World | None, obj: Object | None, house: Installation) -> frozenset[int] | None:
    """Return the replicas that only the job's coordinator may release; None if no world is known.

    Without an agent there is no coordinator. Without Brain the coordinator does not learn which
    replicas to release. In both cases the result is empty, so that surplus replicas do not stay
    forever.
    """
    try:
        if obj is not None and not elastic(read_elastic_job(obj), house):
            return frozenset()
    except BadInput as why:
        log.debug("the ElasticJob cannot be read, so running pods stay as they are: %s", why)
    if world is None or world.ended_at is not None:
        return None if house.brain_url else frozenset()
    return frozenset(member.replica for member in world.members)


def report(
    job: JobId,
    seen: Sequence[ReplicaSeen],
    known: World | None,
    *,
    wished: int,
    generation: int,
    processes: Callable[[str], int],
    queued: bool,
    now: datetime,
) -> WorldReport | None:
    """Return the report that a coordinator would send; None unless all desired replicas run.

    ``processes`` returns the number of worker processes of each replica of a group.

    ``known`` is the latest world that Brain knows; Brain infers the end of this world from the
    replicas. While the job is ``queued``, the report says that the world formed. Once Brain lets
    the job start, the report says that the world makes steps.
    """
    ids = running(seen)
    if not ids or len(ids) != wished:
        return None
    last = known.epoch if known is not None else 0
    if known is not None and known.ended_at is None:
        same = tuple(m.replica for m in known.members) == ids
        if same and (queued or known.stepping_at is not None):
            return None
        last -= same
    before = known.generation if known is not None else 0
    cause = Cause.PLAN if generation > before else Cause.MEMBERSHIP
    members = tuple(
        Member(
            replica=each.id,
            group_rank=rank,
            processes=processes(each.group),
            role=each.role,
            node=each.node or _UNKNOWN,
            address="",
        )
        for rank, each in enumerate(each for each in seen if each.id in ids)
    )
    return WorldReport(
        job=job,
        event=WorldEvent.FORMED if queued else WorldEvent.STEPPING,
        epoch=last + 1,
        generation=generation,
        cause=Cause.START if known is None else cause,
        members=members,
        at=now,
    )


def outdated(pods: Sequence[Object], generation: int) -> list[Object]:
    """Return the living pods that were started for a size other than the desired one."""
    return [
        pod
        for pod in pods
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        and "deletionTimestamp" not in pod["metadata"]
        and identity.generation_of(pod) < generation
    ]
