"""A job's report card, from the advice on its resources, its reservations, and prices."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from brain.estimates.advice import advised, hindsight, notices
from brain.estimates.proposal import proposable
from brain.estimates.roles import hosts_of
from brain.estimates.usage import used_of
from brain.lifecycle.desired import effective_mode, standing
from brain.lifecycle.work import accelerators_of, role_hours
from brain.ports import Transaction
from brain.settings import Settings, prices_of
from brain.types.advice import AmountAdvice, ResourceAdvice, SpaceAdvice
from brain.types.job import Job, OptimizeMode, PolicyMode
from brain.types.report import Grade, IdleNode, JobReport, ResourceLine
from brain.types.resources import Resources
from brain.types.roles import WORKER
from brain.types.telemetry import HostSample
from brain.types.world import ReplicaState, World
from brain.typeset import amounts, cores, count, gibibytes, money, number

_GIB, _DAY_HOURS, _DAY = 2**30, 24.0, timedelta(days=1)
#: Units of which a document's amounts are whole multiples.
_CPU_STEP, _MEMORY_STEP = 50, 64 * 2**20
#: Factor of the advice above which a reservation is wasteful.
_WASTEFUL = 2.0
#: Limits below which replicas are idle: mCPU, utilisation of a device, and the time for which both
#: hold.
_IDLE_MILLIS, _IDLE_DEVICE, _IDLE = 20.0, 0.01, timedelta(minutes=10)
_SHOW = {"cpu": cores, "memory": gibibytes}


def report(
    tx: Transaction, job: Job, document: Mapping[str, Any], settings: Settings, now: datetime
) -> JobReport:
    """Return the report card of a job; ``document`` is the job's document in the form that a person
    writes.
    """
    world = tx.worlds.latest(job.id)
    roles = [one.role for one in used_of(tx, job).roles]
    advice = [
        found
        for role in sorted(roles, key=lambda role: role != WORKER)
        if (found := advised(tx, job, settings, now, role=role)) is not None
    ]
    replicas = world.replicas if world is not None else job.document.replicas.first
    prices = _Prices(job, settings, accelerator_of(tx, job))
    lines = [line for one in advice for line in _lines(one, _of_role(tx, job, one.role), prices)]
    mine = next((one for one in advice if one.role == WORKER), None)
    card = JobReport(
        job=job.id,
        name=job.document.name,
        replicas=replicas,
        headline="",
        lines=tuple(lines),
        idle=tuple(_idle(tx, job, world, prices, now)),
        notices=tuple(notices(tx, job, settings, now)),
        hindsight=_foregone(tx, job, advice, prices, settings, now),
        accelerator_share=_device_share(tx, job, now),
        cost_a_day=prices.a_day(replicas),
        currency=settings.currency,
        basis=mine.basis if mine else "",
        exploring=mine is None or mine.exploring,
        rejected=mine.rejected if mine else 0,
        rejected_because=mine.rejected_because if mine else "",
        missing=tuple(_missing(mine, prices, job.finished)),
        document=_next(document, advice),
    )
    return replace(card, headline=_headline(card))


def _of_role(tx: Transaction, job: Job, role: str) -> int:
    """Return the replicas of a role: those in the world, else those that run beside it."""
    world = tx.worlds.latest(job.id)
    if world is None:
        return job.document.replicas.first if role == WORKER else 0
    members = sum(member.role == role for member in world.members)
    replicas = tx.worlds.replicas(job.id)
    beside = sum(one.role == role and one.state is not ReplicaState.EXITED for one in replicas)
    return members or beside


class _Prices:
    """Prices of the reservations of a job's replicas."""

    def __init__(self, job: Job, settings: Settings, accelerator: str) -> None:
        prices = prices_of(settings.accelerator_prices)
        self.currency = settings.currency
        self._accelerators = accelerators_of(job)
        self._each = prices.get(accelerator, prices.get("*"))
        self._of = {"cpu": (prices.get("cpu"), 1000.0), "memory": (prices.get("memory"), _GIB)}

    def a_day(self, replicas: int) -> float | None:
        """Return the money per day for ``replicas``; None without a price."""
        if self._each is None:
            return None
        return self._each * self._accelerators * replicas * _DAY_HOURS

    def of(self, resource: str, amount: float) -> float | None:
        """Return the money per day for mCPU or bytes; None without a price."""
        price, unit = self._of[resource]
        return None if price is None else price * amount / unit * _DAY_HOURS


def accelerator_of(tx: Transaction, job: Job) -> str:
    """Return the kind of accelerator that the job runs on; ``cpu`` if unknown."""
    if job.document.accelerator is not None:
        return job.document.accelerator
    world = tx.worlds.latest(job.id)
    names = {member.node for member in world.members} if world else set()
    kinds = [node.accelerator for node in tx.nodes.of(job.pool) if node.name in names]
    return kinds[0] if kinds else "cpu"


def _lines(advice: ResourceAdvice, replicas: int, prices: _Prices) -> list[ResourceLine]:
    pairs = (("cpu", advice.cpu), ("memory", advice.memory))
    reserved = [
        ResourceLine(
            role=advice.role,
            resource=resource,
            reserved=one.reserved,
            used=one.used,
            low=one.low,
            advised=one.target,
            high=one.high,
            grade=grade(one),
            reason=one.reason,
            hindsight=hindsight(one),
            unused_cost_a_day=prices.of(resource, max(0.0, one.reserved - one.target) * replicas),
        )
        for resource, one in pairs
        if one is not None
    ]
    spaces = (("shared memory", advice.shared_memory), ("scratch", advice.scratch))
    return reserved + [
        _space_line(advice.role, name, one) for name, one in spaces if one is not None and one.used
    ]


def _foregone(
    tx: Transaction,
    job: Job,
    advice: Sequence[ResourceAdvice],
    prices: _Prices,
    settings: Settings,
    now: datetime,
) -> str:
    """Return what Brain would have reserved in the last day by its present advice, and what that
    would have changed; empty if Brain acts by itself, or would have changed nothing.
    """
    why = _left_to_people(job, settings)
    if not why:
        return ""
    until = job.finished_at or now
    hours = role_hours(tx.worlds.of(job.id), job, until - _DAY, until)
    reserved = standing(tx.plans.effective(job.id), job)[1].amounts
    said, cpu, memory = [], 0.0, 0.0
    for one in advice:
        had, time = reserved.get(one.role, Resources()), hours.get(one.role, 0.0)
        has = proposable(had, one)
        if has != had and time > 0:
            said.append(f"{amounts(had, has)} for each {one.role}")
            cpu += (has.cpu_millis - had.cpu_millis) * time
            memory += (has.memory_bytes - had.memory_bytes) * time
    if not said:
        return ""
    parts = filter(None, (_difference(cpu, 1000.0, "core-h"), _difference(memory, _GIB, "GiB-h")))
    spent = [prices.of(*one) for one in (("cpu", cpu), ("memory", memory)) if one[1]]
    cost = sum(price for price in spent if price is not None) / _DAY_HOURS
    cheaper = f", {money(-cost, prices.currency)} cheaper" if cost < 0 else ""
    return (
        f"Brain would have changed {'; '.join(said)}: {' and '.join(parts)} in the last "
        f"day{cheaper}; Brain did not do so, because {why}"
    )


def _left_to_people(job: Job, settings: Settings) -> str:
    """Return why Brain does not change the amounts of a job by itself; empty if it does."""
    if job.document.optimize_mode is OptimizeMode.MANUAL:
        return "optimizeMode is manual"
    if job.advise_only:
        return f"the job is advise-only: {job.advise_only}"
    mode = effective_mode(job, settings)
    return "" if mode is PolicyMode.AUTO else f"policy.mode is {mode}"


def _difference(amount: float, unit: float, name: str) -> str:
    if not amount:
        return ""
    return f"{number(abs(amount) / unit)} {name} {'more' if amount > 0 else 'less'}"


def _space_line(role: str, name: str, space: SpaceAdvice) -> ResourceLine:
    """Return a line for space that is not reserved, so that a surplus of it is not waste."""
    return ResourceLine(
        role=role,
        resource=name,
        reserved=space.capacity,
        used=space.used,
        low=space.used,
        advised=space.target,
        high=1.5 * space.target,
        grade=Grade.TIGHT if space.target > space.capacity else Grade.GOOD,
        reason=(
            f"this job and everything else on its machine used at most {gibibytes(space.used)} of "
            f"{gibibytes(space.capacity)}"
        ),
    )


def grade(amount: AmountAdvice) -> Grade:
    """Return how well a reservation fits the advised and the used amount; OPEN if nothing is
    reserved.
    """
    if amount.reserved <= 0:
        return Grade.OPEN
    if amount.reserved > _WASTEFUL * amount.target:
        return Grade.WASTEFUL
    if amount.reserved > amount.target:
        return Grade.GENEROUS
    if amount.reserved < amount.used:
        return Grade.SHORT
    return Grade.TIGHT if amount.reserved < amount.target else Grade.GOOD


def _idle(
    tx: Transaction, job: Job, world: World | None, prices: _Prices, now: datetime
) -> list[IdleNode]:
    """Return the nodes whose replicas were idle for ten minutes."""
    if world is None or world.ended_at is not None:
        return []
    hosts = hosts_of(world, tx.worlds.replicas(job.id))
    readings: dict[Any, list[HostSample]] = defaultdict(list)
    for reading in tx.telemetry.hosts(job.id, since=now - _IDLE):
        readings[reading.node].append(reading)
    found = []
    for node, some in readings.items():
        host, seen = hosts.get(node), some[-1].measured_at - some[0].measured_at
        if host is None or seen < 0.8 * _IDLE or not all(map(_rests, some)):
            continue
        found.append(
            IdleNode(
                node=node,
                role=host.role,
                replicas=host.count,
                minutes=seen / timedelta(minutes=1),
                cost_a_day=prices.a_day(host.count) if host.role == WORKER else None,
            )
        )
    return found


def _rests(reading: HostSample) -> bool:
    devices = max((gpu.utilization for gpu in reading.gpus), default=0.0)
    return reading.job_cpu_millis < _IDLE_MILLIS and devices < _IDLE_DEVICE


def _device_share(tx: Transaction, job: Job, now: datetime) -> float | None:
    since = now - timedelta(days=1)
    drawn = tx.telemetry.series(job.id, "gpu_share", since=since, until=now, points=1)
    return drawn[-1].mean if drawn else None


def _missing(advice: ResourceAdvice | None, prices: _Prices, ended: bool) -> list[str]:
    if advice is None:
        return [
            "this job ended before any reading of its machine was taken"
            if ended
            else "there is no reading of this job's machines yet; a collector must run there "
            "(`brain doctor` says whether one does)"
        ]
    unpriced = [
        name
        for resource, name in (
            ("cpu", "cpu=MONEY per core-hour"),
            ("memory", "memory=MONEY per GiB-hour"),
        )
        if prices.of(resource, 1.0) is None
    ]
    if not unpriced:
        return []
    return [
        f"costs need a price: start Brain with accelerator_prices set to {' and '.join(unpriced)}, "
        "as in `brain up --set accelerator_prices=cpu=0.05,memory=0.005`"
    ]


def _next(document: Mapping[str, Any], advice: Sequence[ResourceAdvice]) -> Mapping[str, Any]:
    """Return the document with the amounts advised for each of its roles."""
    roles = dict(document.get("roles") or {})
    for one in advice:
        if one.role == WORKER:
            document = _reserving(document, one)
        elif one.role in roles:
            roles[one.role] = _reserving(roles[one.role], one)
    return {**document, "roles": roles} if roles else document


def _reserving(size: Mapping[str, Any], advice: ResourceAdvice) -> Mapping[str, Any]:
    """Return a document, or the size of a role in it, with the advised amounts."""
    steps = (("cpuMillis", advice.cpu, _CPU_STEP), ("memoryBytes", advice.memory, _MEMORY_STEP))
    needs = {
        name: step * math.ceil(one.target / step) if one.changes else round(one.target)
        for name, one, step in steps
        if one is not None
    }
    return {**size, "resources": {**(size.get("resources") or {}), **needs}}


def _headline(card: JobReport) -> str:
    """Return the most useful next step, in one sentence."""
    if card.notices:
        return _sentence(card.notices[0].sentence)
    if card.idle:
        idle = sum(one.replicas for one in card.idle)
        nodes = ", ".join(one.node for one in card.idle)
        return f"{count(idle, 'replica')} on {nodes} did nothing for ten minutes; release them."
    # A cluster's other roles are not in the document, and their reservation is not read.
    known = [
        line
        for line in card.lines
        if line.resource in _SHOW and (line.role == WORKER or line.grade is not Grade.OPEN)
    ]
    for grades, words in (
        ((Grade.SHORT, Grade.TIGHT), "Reserve more"),
        ((Grade.WASTEFUL, Grade.GENEROUS), "Reserve less"),
        ((Grade.OPEN,), "Say in the document what a replica needs"),
    ):
        graded = [line for line in known if line.grade in grades]
        if graded:
            role = max(graded, key=lambda line: line.unused_cost_a_day or 0.0).role
            found = [line for line in graded if line.role == role]
            each = "replica" if role == WORKER else role
            return f"{words}: {_amounts(found)} for each {each}{_saving(card, found)}."
    return (
        "The reservation fits what the job uses; leave it as it is."
        if known
        else ("Brain has not measured enough yet to judge the reservation.")
    )


def _amounts(lines: Sequence[ResourceLine]) -> str:
    return " and ".join(
        f"{_SHOW[line.resource](line.advised)}{'' if line.resource == 'cpu' else ' of memory'}"
        + (f" instead of {_SHOW[line.resource](line.reserved)}" if line.reserved else "")
        for line in lines
    )


def _saving(card: JobReport, lines: Sequence[ResourceLine]) -> str:
    saved = sum(line.unused_cost_a_day or 0.0 for line in lines)
    return f", which frees {money(saved, card.currency)} a day" if saved > 0 else ""


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
