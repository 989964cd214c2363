"""Runs our policies in the original simulator of Pollux, whose files are not changed.

    python -m benchmarks.jct --simulator PATH     PATH: simulator of petuum/adaptdl, osdi21-artifact

The simulator needs pandas and autograd in addition to the benchmark's packages. Pollux's own policy
and its solver are not loaded. Functions that newer libraries lack (``DataFrame.append``) are added
at run time. Our fit replaces the agent's: it has the same objective, start and bounds, and takes a
tenth of the time.
"""

import contextlib
import importlib
import io
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.jct.pollux import (
    GPUS_PER_NODE,
    NODES,
    ROUND_SECONDS,
    Allocation,
    Job,
    Outcome,
    Policy,
    outcome,
    timed,
)
from benchmarks.models.peers import Pollux
from brain.errors import BadInput, Unavailable


def simulate(simulator: Path, file: Path, jobs: Sequence[Job], policy: Policy) -> Outcome:
    """Run the workload ``file``, whose jobs are ``jobs``, to its end under ``policy``.

    Raises:
        BadInput: there is no such simulator.
        Unavailable: a library that it needs is missing.
    """
    original = _loaded(simulator)
    for job in jobs:
        policy.admit(job)
    guest = type("Guest", (Guest, original.PolluxPolicy), {})()
    with contextlib.redirect_stdout(io.StringIO()):
        workload = importlib.import_module("pandas").read_csv(file)
        cluster = original.Cluster(workload, guest, NODES, num_gpus=GPUS_PER_NODE)
        guest.begin(policy, jobs, cluster)
        while not cluster.all_complete():
            cluster.step(ROUND_SECONDS)
            cluster.logs = cluster.logs[-1:]
    for job in jobs:
        theirs = guest.theirs[job.name]
        job.completed, job.attained_gpu_seconds = theirs.completion_time, theirs.attained_service
        job.restarts = -1 if theirs.num_restarts is None else theirs.num_restarts
    return outcome(jobs, guest.spent)


def _loaded(simulator: Path) -> types.ModuleType:
    """Return the original's module ``simulator``, with its other modules importable."""
    if not (simulator / "simulator.py").exists():
        raise BadInput(
            f"{simulator} has no simulator.py; give the folder simulator of Pollux's artifact"
        )
    stub = types.ModuleType("pollux")
    stub.PolluxPolicy = type("PolluxPolicy", (), {})  # type: ignore[attr-defined]
    sys.modules.setdefault("pollux", stub)
    if str(simulator) not in sys.path:
        sys.path.insert(0, str(simulator))
    try:
        pandas = importlib.import_module("pandas")
        if not hasattr(pandas.DataFrame, "append"):
            pandas.DataFrame.append = lambda self, other, **options: pandas.concat(
                [self, other], **options
            )
        original = importlib.import_module("simulator")
    except ModuleNotFoundError as missing:
        raise Unavailable(
            f"the original simulator needs {missing.name}; install pandas and autograd"
        ) from missing
    original.fit_perf_params = _fit  # type: ignore[attr-defined]
    return original


def _fit(nodes: Any, replicas: Any, local: Any, compute: Any, step: Any) -> Any:
    """Fit as the original agent does, with an analytic gradient."""
    model = Pollux()
    columns = (nodes, replicas, local, np.ones(len(nodes)))
    model.fit(np.column_stack(columns).astype(float), np.array(step), np.array(compute))
    return sys.modules["goodput"].PerfParams(*model.parameters)


class Guest:
    """Gives one of our policies' decisions to the original simulator."""

    def __init__(self) -> None:
        self.spent: list[float] = []

    def begin(self, policy: Policy, jobs: Sequence[Job], cluster: Any) -> None:
        """Take over the batch sizes of the original simulator's jobs."""
        self.policy, self.cluster = policy, cluster
        self.ours = {job.name: job for job in jobs}
        self.theirs = {job.name: job for job in cluster.jobs}
        for name, theirs in self.theirs.items():
            _batches(theirs, self.ours[name])

    def optimize(
        self, infos: Any, nodes: Any, base: Allocation, template: Any
    ) -> tuple[dict[str, list[int]], int]:
        """Decide a round from the original's job objects, because its arguments contain less."""
        del template
        active = [self.ours[name] for name in infos]
        for name, job in self.ours.items():
            _reflect(self.theirs[name], job)
        now, capacity = float(self.cluster.current_time), [GPUS_PER_NODE] * len(nodes)
        held = {name: list(base[name]) for name in infos if base.get(name)}
        chosen, spent = timed(self.policy, now, active, capacity, held)
        self.spent.append(spent)
        for job in active:
            if held.get(job.name) == list(chosen.get(job.name, ())):
                self.theirs[job.name].update_local_bsz(self.theirs[job.name].placement)
        return {name: list(held) for name, held in chosen.items() if held}, len(nodes)


def _reflect(theirs: Any, ours: Job) -> None:
    """Copy the state of the original's job to our job object."""
    ours.progress, ours.epoch = theirs.progress, theirs.epoch
    ours.completed = theirs.completion_time
    ours.placement = tuple(theirs.placement)
    ours.pause, ours.attained_gpu_seconds = theirs.rescale_time, theirs.attained_service
    ours.local_batch, ours.accumulation = theirs.atomic_bsz, theirs.accum_steps + 1


def _batches(theirs: Any, ours: Job) -> None:
    """Copy the batch size of our job to the original's job."""
    before = theirs.update_local_bsz

    def update(placement: Sequence[int]) -> None:
        if ours.batch is not None:
            theirs.target_batch_size = ours.batch
            before(placement)
            return
        most = ours.application.largest_batch // (sum(placement) * ours.accumulation)
        theirs.atomic_bsz = min(ours.local_batch, most)
        theirs.accum_steps = ours.accumulation - 1

    theirs.update_local_bsz = update
