"""Jobs and nodes of the simulation, as users and scalers would give them to the service."""

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

import numpy as np

from brain.models.efficiency import efficiency
from brain.simulator.spec import Spec
from brain.simulator.world import SimulatedJob, SimulatedNode
from brain.types.job import (
    ApprovalPolicy,
    BatchBounds,
    Checkpoint,
    JobDocument,
    OptimizeMode,
    PolicyMode,
)
from brain.types.resources import Node, NodeName, PoolName, Resources
from brain.types.sharing import PoolShares, StoredPolicy

POOL = PoolName("simulated")
#: Resources of a replica: its accelerator; CPU and memory do not matter here.
_EACH = Resources(gpus=1)
_SHARES = np.linspace(0.005, 0.995, 100)


def document_of(run: SimulatedJob, mode: OptimizeMode, holds: Mapping[str, int]) -> JobDocument:
    """Return the document that the owner of a simulated job would submit.

    ``holds`` is the job's largest micro-batch on each kind of node.
    """
    arrival, largest = run.arrival, run.application.largest_batch
    batch = BatchBounds(global_size=run.batch)
    if arrival.tunes:
        least = min(holds.values())
        more = {kind: most for kind, most in holds.items() if most > least}
        batch = replace(batch, global_max=largest, local_max=least, local_max_on=more, tune=True)
    return JobDocument(
        name=arrival.submitted_as or arrival.name,
        command=("python", f"{arrival.submitted_as or arrival.name}.py"),
        project=arrival.project,
        replicas=arrival.bounds,
        resources=_EACH,
        batch=batch,
        checkpoint=Checkpoint(path="simulated"),
        epochs=run.application.epochs if arrival.declared else None,
        steps=steps_of(run) if arrival.declared else None,
        priority=arrival.priority,
        optimize_mode=mode,
        policy=ApprovalPolicy(mode=PolicyMode.AUTO),
    )


def steps_of(run: SimulatedJob) -> int:
    """Return the number of optimizer steps of the whole run with the run's batch size.

    An example in a batch that is larger than the application's first batch counts less.
    """
    batch, application = run.batch, run.application
    noises = [application.noise(float(share), batch) for share in _SHARES]
    worths = [
        float(efficiency(batch, first_batch=application.first_batch, noise=noise))
        for noise in noises
    ]
    return math.ceil(run.work / batch * float(np.mean(1 / np.array(worths))))


def steps_for(run: SimulatedJob, work: float) -> int:
    """Return the number of optimizer steps that ``work`` takes at the run's present progress and
    batch size.
    """
    batch, application = run.batch, run.application
    noise = application.noise(min(1.0, run.done / run.work), batch)
    worth = efficiency(batch, first_batch=application.first_batch, noise=noise)
    return round(work / (batch * float(worth)))


def policy_of(spec: Spec, at: datetime) -> StoredPolicy:
    """Return the policy of the pool, at version 0, because it was never stored."""
    policy = PoolShares(projects=spec.projects)
    return StoredPolicy(pool=POOL, policy=policy, by="cluster", updated_at=at, version=0)


def name_of(node: SimulatedNode) -> NodeName:
    return NodeName(f"{node.kind}-{node.index}")


def stored(node: SimulatedNode, at: datetime) -> Node:
    return Node(
        name=name_of(node),
        pool=POOL,
        capacity=Resources(gpus=node.capacity),
        accelerator=node.kind,
        seen_at=at,
        schedulable=node.up,
    )
