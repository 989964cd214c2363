"""Runs our policies in the original simulator of Sia, whose files are not changed.

    python -m benchmarks.jct --sia-simulator PATH     PATH: sia-simulator of siasosp23/artifacts

The simulator needs pandas, autograd and rich in addition to the benchmark's packages, but no
solver, because Sia's own policy is not called. Functions that newer libraries lack
(``DataFrame.append``, ``np.int``) are added at run time.
"""

import contextlib
import importlib
import io
import sys
import time
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.jct.pollux import Outcome
from benchmarks.jct.sia.cluster import HETEROGENEOUS, Kind, Tables, workload
from benchmarks.jct.sia.jobs import Grant, Job
from benchmarks.jct.sia.model import TOLERANCE
from benchmarks.jct.sia.run import ROUND_SECONDS, Policy, check, outcome
from benchmarks.models.peers import Pollux
from brain.errors import BadInput, Unavailable

#: Modules of the original that our policies do not need, and the class that is asked of each.
_UNUSED = {"gavel": "GavelPolicy", "sia_fix": "SiaFixPolicy"}


def simulate(
    simulator: Path,
    file: Path,
    tables: Mapping[str, Tables],
    policy: Policy,
    kinds: Sequence[Kind] = HETEROGENEOUS,
) -> Outcome:
    """Run a workload to its end under ``policy`` in the simulator at ``simulator``.

    Raises:
        BadInput: there is no such simulator.
        Unavailable: a library that it needs is missing.
    """
    original = _loaded(simulator)
    jobs = {
        one.name: Job(
            name=one.name,
            application=one.application,
            tables=tables[one.application],
            submitted=one.seconds,
            asked_batch=one.batch,
        )
        for one in workload(file)
    }
    for job in jobs.values():
        policy.admit(job)
    cluster, guest = _cluster(original, file, kinds)
    guest.begin(policy, kinds, jobs, cluster)
    while not cluster.all_complete():
        with contextlib.redirect_stdout(io.StringIO()):
            cluster.step(ROUND_SECONDS)
        cluster.logs = cluster.logs[-1:]
    for theirs in cluster.jobs:
        ours = jobs[theirs.name]
        ours.finished, ours.gpu_seconds = theirs.completion_time, theirs.attained_service
        ours.restarts = theirs.num_restarts
    return outcome(list(jobs.values()), guest.spent)


def _loaded(simulator: Path) -> types.ModuleType:
    """Return the original's module ``cluster``, with its other modules importable."""
    if not (simulator / "cluster.py").exists():
        raise BadInput(
            f"{simulator} has no cluster.py; give the folder sia-simulator of Sia's artifact"
        )
    sys.modules.setdefault("cvxpy", types.ModuleType("cvxpy"))
    for name, policy in _UNUSED.items():
        stub = types.ModuleType(name)
        setattr(stub, policy, type(policy, (), {}))
        sys.modules.setdefault(name, stub)
    if str(simulator) not in sys.path:
        sys.path.insert(0, str(simulator))
    try:
        pandas = importlib.import_module("pandas")
        with contextlib.redirect_stdout(io.StringIO()):
            original = importlib.import_module("cluster")
    except ModuleNotFoundError as missing:
        raise Unavailable(
            f"the original simulator needs {missing.name}; install pandas, autograd and rich"
        ) from missing
    if not hasattr(pandas.DataFrame, "append"):
        pandas.DataFrame.append = lambda self, other, **options: pandas.concat(
            [self, other], **options
        )
    _fit_faster()
    return original


def _fit_faster() -> None:
    """Fit with an analytic gradient: the same objective, start and bounds, a tenth of the time."""
    parameters = sys.modules["goodput"].PerfParams

    def fit(nodes: Any, replicas: Any, local: Any, compute: Any, step: Any) -> Any:
        found = Pollux(TOLERANCE)
        columns = (nodes, replicas, local, np.ones(len(nodes)))
        found.fit(np.column_stack(columns).astype(float), np.array(step), np.array(compute))
        return parameters(*found.parameters)

    sys.modules["job"].fit_perf_params = fit  # type: ignore[attr-defined]


def _cluster(original: types.ModuleType, file: Path, kinds: Sequence[Kind]) -> tuple[Any, Any]:
    """Return the original's cluster, with an object that it uses as its policy."""
    pandas = sys.modules["pandas"]
    nodes = {kind.name: kind.nodes for kind in kinds}
    gpus = {kind.name: kind.gpus_per_node for kind in kinds}
    guest = type("Guest", (Guest, original.SiaPolicy), {})()
    with contextlib.redirect_stdout(io.StringIO()):
        cluster = original.Cluster(pandas.read_csv(file), guest, nodes, gpus, nodes)
    return cluster, guest


class Guest:
    """Gives one of our policies' decisions to the original simulator."""

    def __init__(self) -> None:
        self.spent: list[float] = []

    def begin(
        self, policy: Policy, kinds: Sequence[Kind], jobs: Mapping[str, Job], cluster: Any
    ) -> None:
        """Take over the batch sizes of the original simulator's jobs."""
        self.policy, self.kinds, self.jobs, self.cluster = policy, kinds, jobs, cluster
        self.theirs = {job.name: job for job in cluster.jobs}
        self.held: dict[str, Grant] = {}
        for theirs in cluster.jobs:
            _batches(theirs, jobs[theirs.name])

    def optimize(self, infos: Mapping[str, Any], nodes: Any, base: Any) -> dict[str, Any]:
        """Decide a round from the original's job objects, because its arguments contain less."""
        del nodes, base
        active = [self.jobs[name] for name in infos]
        for name, job in self.jobs.items():
            reflect(self.theirs[name], job)
        held = {name: grant for name, grant in self.held.items() if name in infos}
        begun = time.process_time()
        chosen = self.policy.decide(float(self.cluster.current_time), active, self.kinds, held)
        self.spent.append(1e3 * (time.process_time() - begun))
        check(chosen, self.kinds)
        self.held = dict(chosen)
        return {name: _written(chosen.get(name)) for name in infos}


def _written(grant: Grant | None) -> tuple[str | None, Sequence[int]]:
    if grant is None:
        return None, ()
    pairs = zip(grant.nodes, grant.shape, strict=True)
    return grant.kind, [node for node, gpus in pairs for _ in range(gpus)]


def reflect(theirs: Any, ours: Job) -> None:
    """Copy the state of the original's job to our job object."""
    ours.kind, ours.shape = theirs.current_cluster, tuple(theirs.placement)
    ours.local, ours.micro = theirs.atomic_bsz, theirs.accum_steps + 1
    ours.progress, ours.epoch = theirs.progress, theirs.epoch
    ours.finished = theirs.completion_time
    ours.restoring, ours.restarts = theirs.rescale_time, theirs.num_restarts


def _batches(theirs: Any, ours: Job) -> None:
    """Let our policy choose the batch size if it wants to."""
    before = theirs.update_local_bsz

    def update(placement: Sequence[int]) -> None:
        ours.epoch, ours.progress = theirs.epoch, theirs.progress
        kind, shape = theirs.current_cluster, tuple(filter(None, placement))
        chosen = None if ours.batching is None else ours.batching(ours, kind, shape)
        if chosen is None:
            before(placement)
        else:
            theirs.atomic_bsz, micro = ours.cut(kind, shape, *chosen)
            theirs.accum_steps = micro - 1

    theirs.update_local_bsz = update
