"""The results of a simulation, in the measures by which schedulers are compared."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from brain.simulator.applications import progress
from brain.simulator.placing import place, shape
from brain.simulator.world import PlacementStay, SimulatedCluster, SimulatedJob

#: Number of pieces of a run over which its time is summed, because noise grows during the run.
_PIECES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """The course of one job in a simulation; times are in seconds since the simulation began."""

    name: str
    application: str
    project: str
    submitted: float
    started: float
    finished: float
    accelerator_seconds: float
    #: Changes of its placement after the first, and changes forced by lost nodes.
    restarts: int
    lost: int
    #: Share of its work that was repeated.
    redone: float
    #: Seconds that the job would have taken with an equal share of the cluster to itself.
    alone_seconds: float
    stays: tuple[PlacementStay, ...]

    @property
    def jct(self) -> float:
        """Return the seconds from submission to completion."""
        return self.finished - self.submitted

    @property
    def unfairness(self) -> float:
        """Return the finish-time fairness ρ: the job's time divided by the time that it would take
        with an equal share of the cluster; 1 is fair.
        """
        return self.jct / self.alone_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The results of a simulation in one row; equal seeds give equal rows."""

    jobs: int
    jct_mean: float
    jct_p50: float
    jct_p99: float
    makespan: float
    accelerator_hours: float
    #: Share of the accelerators' time, until the last job ended, that jobs held.
    utilization: float
    restarts_per_job: float
    #: Finish-time fairness, mean and largest, and the share of jobs that were worse off than with
    #: an equal share.
    rho_mean: float
    rho_max: float
    unfair: float
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTime:
    """Seconds that decisions took on this machine, which differ between runs."""

    rounds: int
    mean: float
    longest: float


def summary(jobs: Sequence[JobResult], accelerators: int) -> Summary:
    """Return the means, percentiles and totals of finished jobs."""
    times = np.array([job.jct for job in jobs])
    rhos = [job.unfairness for job in jobs]
    began = min(job.submitted for job in jobs)
    makespan = max(job.finished for job in jobs) - began
    held = sum(job.accelerator_seconds for job in jobs)
    return Summary(
        jobs=len(jobs),
        jct_mean=float(times.mean()),
        jct_p50=float(np.percentile(times, 50)),
        jct_p99=float(np.percentile(times, 99)),
        makespan=makespan,
        accelerator_hours=held / 3600,
        utilization=held / (accelerators * makespan),
        restarts_per_job=fmean(job.restarts for job in jobs),
        rho_mean=fmean(rhos),
        rho_max=max(rhos),
        unfair=fmean(rho > 1 for rho in rhos),
        lost=sum(job.lost for job in jobs),
    )


def results(world: SimulatedCluster) -> tuple[JobResult, ...]:
    """Return every job of a finished world, in the order of arrival."""
    shares = _company(world.runs)
    return tuple(_result(world, run, shares[run.name]) for run in world.runs)


def _result(world: SimulatedCluster, run: SimulatedJob, company: float) -> JobResult:
    assert run.started_at is not None, "it has run"
    assert run.finished_at is not None, "results are read once every job has finished"
    return JobResult(
        name=run.name,
        application=run.arrival.application,
        project=run.arrival.project,
        submitted=run.arrival.at_seconds,
        started=run.started_at,
        finished=run.finished_at,
        accelerator_seconds=run.held,
        restarts=run.restarts,
        lost=run.lost,
        redone=run.redone / run.work,
        alone_seconds=_alone(world, run, company),
        stays=tuple(run.stays),
    )


def _company(runs: Sequence[SimulatedJob]) -> Mapping[str, float]:
    """Return for each job the mean number of jobs present during it, including itself."""
    spans = {run.name: (run.arrival.at_seconds, run.finished_at or 0.0) for run in runs}
    edges = np.array(sorted({instant for span in spans.values() for instant in span}))
    began = np.searchsorted(edges, [span[0] for span in spans.values()])
    ended = np.searchsorted(edges, [span[1] for span in spans.values()])
    steps = np.zeros(len(edges))
    np.add.at(steps, began, 1)
    np.add.at(steps, ended, -1)
    area = np.concatenate([[0.0], np.cumsum(np.cumsum(steps)[:-1] * np.diff(edges))])
    present = (area[ended] - area[began]) / np.maximum(edges[ended] - edges[began], 1e-9)
    return dict(zip(spans, (float(value) for value in present), strict=True))


def _alone(world: SimulatedCluster, run: SimulatedJob, company: float) -> float:
    """Return the seconds with a share of 1 / ``company`` of each kind of node, on the best kind and
    at the best size within the job's bounds, started once.
    """
    best = min(
        _whole(world, run, name, size)
        for name, kind in world.spec.nodes.items()
        for size in _affordable(run, kind.count * kind.gpus / max(1.0, company))
    )
    return world.restart_seconds(run) + best


def _affordable(run: SimulatedJob, share: float) -> list[int]:
    """Return the allowed sizes within a share, at most eight; the smallest size if none is."""
    sizes = list(run.arrival.bounds.sizes())
    within = [size for size in sizes if size <= share] or sizes[:1]
    step = max(1, len(within) // 8)
    return sorted({*within[::step], within[-1]})


def _whole(world: SimulatedCluster, run: SimulatedJob, kind: str, size: int) -> float:
    pace = pace_of(world, run, kind, size)
    return sum(run.work / _PIECES / pace((piece + 0.5) / _PIECES) for piece in range(_PIECES))


def pace_of(
    world: SimulatedCluster, run: SimulatedJob, kind: str, size: int
) -> Callable[[float], float]:
    """Return a function from the share of the run that is done to the job's work per second.

    The job has ``size`` replicas on as few nodes of ``kind`` as possible, which run no other job.
    """
    spec = world.spec.nodes[kind]
    placement = place(dict.fromkeys(range(spec.count), spec.gpus), size)
    if placement is None:
        return lambda share: 1e-12
    where, device = shape(placement), world.device(kind)
    return lambda share: progress(run.application, device, where, run.arrival.batch, share)
