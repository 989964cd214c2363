"""The loop of a simulation: time passes and a policy decides, until every job has finished."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from brain.errors import Undetermined
from brain.settings import Settings
from brain.simulator.applications import Application
from brain.simulator.measures import JobResult, PolicyTime, Summary, pace_of, results, summary
from brain.simulator.policies import POLICIES, Contender, RoundPolicy
from brain.simulator.service import Service
from brain.simulator.spec import Spec
from brain.simulator.workload import LAST_SECONDS, Arrival
from brain.simulator.world import Governed, SimulatedCluster, SimulatedEvent, SimulatedJob
from brain.types.job import OptimizeMode
from brain.typeset import duration, percent

#: Standard deviation of the logarithm of measured step times.
NOISE = 0.02
#: Seconds without any work after which the simulation counts as stuck.
_STALLED_SECONDS = 7 * 86_400.0
#: Seconds between decisions while jobs are not measured yet: the service has a turn every two
#: seconds, and needs a few windows of steps to measure a configuration.
_AWAITED_SECONDS = 15.0
#: Seconds between two decisions.
_LEAST_SECONDS = 1.0

#: Policies by their names on the command line, Brain's own first.
NAMES = ("brain", *POLICIES)

Stopwatch = Callable[[], float]
#: Called with the number of finished jobs, and the virtual time.
Progress = Callable[[int, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOutcome:
    """The course of a workload under one policy."""

    policy: str
    seed: int
    spec: Spec
    jobs: tuple[JobResult, ...]
    summary: Summary
    time: PolicyTime


class Governor(Protocol):
    """The code that decides the placement of jobs."""

    def govern(self, happenings: Sequence[SimulatedEvent], stopwatch: Stopwatch) -> Governed:
        """Change placements in the world, given the latest events."""
        ...


class Direct:
    """Applies a policy that names the nodes of each job."""

    def __init__(self, world: SimulatedCluster, policy: RoundPolicy) -> None:
        self._world, self._policy = world, policy

    def govern(self, happenings: Sequence[SimulatedEvent], stopwatch: Stopwatch) -> Governed:
        """Call the policy and carry out its answer: jobs stop or move before other jobs start."""
        world = self._world
        contenders = [self._contender(run) for run in world.present]
        began = stopwatch()
        chosen = self._policy.allot(contenders, world.machines)
        took = stopwatch() - began
        changed = [run for run in world.present if chosen.get(run.name, ()) != run.placement]
        for run in changed:
            world.place(run, ())
        for run in changed:
            world.place(run, chosen.get(run.name, ()))
        return Governed(took)

    def _contender(self, run: SimulatedJob) -> Contender:
        arrival, world = run.arrival, self._world

        def seconds_left(size: int, kind: str) -> float:
            return run.left / pace_of(world, run, kind, size)(min(1.0, run.done / run.work))

        return Contender(
            key=run.name,
            arrived_seconds=arrival.at_seconds,
            wanted=arrival.wanted,
            sizes=tuple(arrival.bounds.sizes()),
            placement=run.placement,
            attained=run.held,
            priority=arrival.priority,
            restart_seconds=world.restart_seconds(run),
            seconds_left=seconds_left,
        )


def simulate(
    workload: Sequence[Arrival],
    spec: Spec,
    applications: Mapping[str, Application],
    *,
    policy: str,
    settings: Settings,
    stopwatch: Stopwatch,
    seed: int = 0,
    mode: OptimizeMode = OptimizeMode.CLUSTER,
    noise: float = NOISE,
    progress: Progress | None = None,
) -> PolicyOutcome:
    """Run a workload to its end.

    Args:
        policy: One of ``NAMES``.
        settings: Settings of Brain; other policies ignore them.
        stopwatch: Clock in seconds that measures how long decisions take.
        seed: Seed of faults and of the scatter of measurements.
        mode: Scope of Brain's decisions: single jobs or the cluster.

    Raises:
        Undetermined: no job makes progress although some wait, or a job takes more than a year; the
            message names the job.
    """
    world = SimulatedCluster(spec, workload, applications, seed=seed)
    if policy == "brain":
        governor: Governor = Service(world, settings, mode=mode, seed=seed, noise=noise)
    else:
        governor = Direct(world, POLICIES[policy]())
    took = _live(world, governor, stopwatch, progress or (lambda finished, now: None))
    jobs = results(world)
    return PolicyOutcome(
        policy=policy,
        seed=seed,
        spec=spec,
        jobs=jobs,
        summary=summary(jobs, spec.accelerators),
        time=PolicyTime(rounds=len(took), mean=sum(took) / len(took), longest=max(took)),
    )


def _live(
    world: SimulatedCluster, governor: Governor, stopwatch: Stopwatch, progress: Progress
) -> list[float]:
    spec, took, worked_at = world.spec, list[float](), 0.0
    due = upcoming = world.next_arrival or spec.turn_seconds
    while not world.over:
        news = world.advance(upcoming)
        governed = governor.govern(news, stopwatch)
        took.append(governed.seconds)
        if governed.decided or world.now >= due:
            due = world.now + spec.turn_seconds
        pause = due - world.now
        if governed.awaited:
            pause = min(pause, _AWAITED_SECONDS)
        if governed.freed:
            pause = min(spec.settle_seconds, spec.turn_seconds)
        upcoming = world.now + max(pause, _LEAST_SECONDS)
        if not world.present:
            worked_at, upcoming = world.now, max(upcoming, world.next_arrival or 0.0)
        if any(run.placement for run in world.present):
            worked_at = world.now
        if world.now - worked_at > _STALLED_SECONDS:
            raise _stalled(world, worked_at)
        if world.present and world.now > world.present[0].arrival.at_seconds + LAST_SECONDS:
            raise _endless(world)
        progress(len(world.runs) - len(world.present), world.now)
    return took


def _endless(world: SimulatedCluster) -> Undetermined:
    run = world.present[0]
    return Undetermined(
        f"{run.name} has {percent(run.left / run.work)} of its work left after a year; reduce "
        "its scale, or make its application faster",
        code="endless",
    )


def _stalled(world: SimulatedCluster, since: float) -> Undetermined:
    run = world.present[0]
    return Undetermined(
        f"no job has run for {duration(world.now - since)}, and {run.name} still waits: it "
        f"asks for {run.arrival.wanted} accelerators of one kind, and needs at least "
        f"{run.arrival.bounds.min}; enlarge the cluster, or reduce its failures",
        code="stalled",
    )
