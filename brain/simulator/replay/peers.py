"""Asks a policy of another system about a recorded moment, in one round over the jobs of that
time.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from brain.errors import Undetermined
from brain.models.job import JobModel
from brain.models.job_fit import fit
from brain.models.terms import terms_of
from brain.simulator.placing import Placement, UsableNode
from brain.simulator.policies import POLICIES, Contender
from brain.simulator.replay.past import Cut, job_then, worlds_then
from brain.simulator.replay.record import Record, Recording
from brain.types.job import Job, JobId
from brain.types.resources import Node, NodeName, Resources
from brain.types.world import World

#: Policies that know only the requested size.
_RIGID = frozenset({"fifo", "tiresias"})
#: Least training time left of a job with unknown end; usually it trains as long again as it has.
_LEAST_SECONDS = 600.0


def allotted(policy: str, recording: Recording, job: JobId, cut: Cut) -> int:
    """Return the number of replicas that a policy would give a job at the cut, a position in the
    order of events; 0 if the job would wait.

    The capacity of a node is its accelerators, or its cores if it has none. A replica needs the
    accelerators or cores that it reserves; unequal replicas of a job are treated as equal.
    """
    pool = next(record.job.pool for record in recording.jobs if record.job.id == job)
    nodes = [node for node in recording.nodes if node.pool == pool and node.schedulable]
    machines = tuple(
        UsableNode(index=index, kind=node.accelerator, capacity=_units(node))
        for index, node in enumerate(nodes)
    )
    index = {node.name: number for number, node in enumerate(nodes)}
    contenders, each = [], 1
    for record in recording.jobs:
        then = job_then(record, cut)
        if then.pool == pool and then.created_at <= cut.at and not then.finished:
            worlds = list(worlds_then(record, cut))
            contender = _contender(record, then, worlds, cut.at, index)
            contenders.append(_rigid(contender) if policy in _RIGID else contender)
            each = _each(then.resources) if then.id == job else each
    chosen = POLICIES[policy]().allot(contenders, machines)
    return len(chosen.get(job, ())) // each


def _contender(
    record: Record, job: Job, worlds: list[World], at: datetime, index: Mapping[NodeName, int]
) -> Contender:
    document, each = job.document, _each(job.resources)
    lived = sum(world.replicas * _seconds(world, at) for world in worlds)
    return Contender(
        key=job.id,
        arrived_seconds=job.created_at.timestamp(),
        wanted=document.replicas.first * each,
        sizes=tuple(size * each for size in document.replicas.sizes()),
        placement=_placement(worlds, index, each),
        attained=lived * each,
        priority=document.priority,
        seconds_left=_seconds_left(record, worlds, at, each),
    )


def _rigid(job: Contender) -> Contender:
    """Return a job for a policy of one size: the requested size, on its present nodes."""
    enough = len(job.placement) >= job.wanted
    return replace(job, placement=job.placement[: job.wanted] if enough else ())


def _placement(worlds: list[World], index: Mapping[NodeName, int], each: int) -> Placement:
    if not worlds or worlds[-1].ended_at is not None:
        return ()
    nodes = [index[member.node] for member in worlds[-1].members if member.node in index]
    return tuple(sorted(node for node in nodes for _ in range(each)))


def _seconds_left(
    record: Record, worlds: list[World], at: datetime, each: int
) -> Callable[[int, str], float]:
    """Return the function that estimates the seconds a job has left at a size.

    The job is expected to train as long again as it has, at its present size; its own model
    converts that to other sizes.
    """
    trained = max(_LEAST_SECONDS, sum(_seconds(world, at) for world in worlds))
    present = worlds[-1].replicas if worlds else record.job.document.replicas.first

    def seconds_left(size: int, kind: str) -> float:
        try:
            model = _model(record)
            here = model.predict(present).examples_per_second
            there = model.predict(max(1, size // each)).examples_per_second
        except Undetermined:
            return trained
        return trained * here / there

    return seconds_left


def _model(record: Record) -> JobModel:
    if not record.points:
        raise Undetermined("no world of the job was ever measured")
    return fit(record.points[-1], record.points[:-1], terms=terms_of(record.job.document))


def _seconds(world: World, at: datetime) -> float:
    return max(0.0, ((world.ended_at or at) - world.formed_at).total_seconds())


def _units(node: Node) -> int:
    return node.capacity.gpus or max(1, node.capacity.cpu_millis // 1000)


def _each(resources: Resources) -> int:
    return resources.gpus or max(1, -(-resources.cpu_millis // 1000))
