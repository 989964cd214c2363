"""Reports that the probes, scaler and coordinator of a simulated job would send to Brain."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np

from brain.models.fitting import MINIMUM_WINDOWS
from brain.simulator.applications import Application, DeviceKind, Shape, split
from brain.simulator.placing import shape
from brain.simulator.world import SimulatedCluster, SimulatedJob
from brain.types.job import JobId
from brain.types.resources import NodeName
from brain.types.telemetry import Phase, SampleSource, SourceId, ThroughputSample
from brain.types.world import Member, Replica, ReplicaExit, ReplicaState

#: Seconds of a window of steps: long enough to need few samples, short enough to yield a median
#: soon. Windows of the real probe last a second.
WINDOW_SECONDS, _SHORTEST_SECONDS = 10.0, 3.0
#: As in the real probe: steps, and least seconds, from one sampled step to the next.
_SAMPLED_STEPS, _SAMPLED_SECONDS = 16.0, 0.1


class Telling:
    """The simulated probes of one job: windows of steps, with the scatter of real measurements."""

    def __init__(self, generator: np.random.Generator, noise: float) -> None:
        self._generator, self._noise = generator, noise
        self._sequence, self._steps, self._epoch = 0, 0.0, 0
        #: Sampled steps since the last window that reported some.
        self._sampled = 0.0

    def windows(
        self,
        run: SimulatedJob,
        world: SimulatedCluster,
        *,
        job: JobId,
        epoch: int,
        generation: int,
        replicas: Sequence[int],
        since: float,
        at: Callable[[float], datetime],
    ) -> Iterator[ThroughputSample]:
        """Return the samples of all ranks from ``since`` until now, with as many windows as fit."""
        if epoch != self._epoch:
            self._steps, self._epoch = 0.0, epoch
        told = world.now - since
        soon = min(MINIMUM_WINDOWS, int(told / _SHORTEST_SECONDS))
        count = max(1, soon, round(told / WINDOW_SECONDS))
        width = told / count
        device = world.device(run.kind)
        holds = run.application.holds(device)
        holds = min(holds, run.most_local or run.batch)
        local, accumulation = split(run.batch, len(replicas), holds)
        where = shape(run.placement)
        truth = run.application.seconds(device, where, local, accumulation)
        truth *= world.slowness(run)
        wait = exchange_wait_share(run.application, device, where, local, accumulation)
        for window in range(count):
            # All ranks wait for each other, so they measure the same time.
            seconds = truth * float(np.exp(self._generator.normal(0, self._noise)))
            waited = wait * float(np.exp(self._generator.normal(0, self._noise)))
            self._steps += width / truth
            gradients = self._gradients(
                run,
                local,
                local * accumulation * len(replicas),
                min(width / truth / _SAMPLED_STEPS, width / _SAMPLED_SECONDS),
            )
            self._sequence += 1
            for rank, replica in enumerate(replicas):
                yield ThroughputSample(
                    place=SampleSource(
                        job=job,
                        source=SourceId(f"{epoch}-{rank}"),
                        replica=replica,
                        local_rank=0,
                        rank=rank,
                        epoch=epoch,
                        generation=generation,
                    ),
                    measured_at=at(since + width * (window + 1)),
                    sequence=self._sequence,
                    phase=Phase.TRAINING,
                    nodes=len(where),
                    replicas=len(replicas),
                    processes=len(replicas),
                    accelerator=run.kind,
                    local_batch=local,
                    accumulation=accumulation,
                    steps=max(1, round(width / truth)),
                    step=max(1, round(self._steps)),
                    step_seconds=seconds,
                    step_seconds_mean=seconds,
                    data_wait_seconds=0.0,
                    exchange_wait_seconds=seconds * waited if len(replicas) > 1 else None,
                    examples_per_second=local * accumulation / seconds,
                    **gradients,
                )

    def _gradients(self, run: SimulatedJob, small: int, big: int, sampled: float) -> dict[str, Any]:
        """Return norms that compare a micro-batch with a step; empty if the two are the same, or
        before a whole step was sampled.

        For a mean gradient of squared norm 1 and noise scale phi, a batch b has the squared norm 1
        + phi / b.
        """
        self._sampled += sampled
        whole = int(self._sampled)
        self._sampled -= whole
        if small == big or not whole:
            return {}
        phi = run.application.noise(min(1.0, run.done / run.work), run.batch)
        return {
            "gns_steps": whole,
            "gns_small_batch": small,
            "gns_small_square": 1 + phi / small,
            "gns_big_batch": big,
            "gns_big_square": 1 + phi / big,
        }


def exchange_wait_share(
    application: Application, device: DeviceKind, where: Shape, local: int, accumulation: int
) -> float:
    """Return the share of a step's time in which workers wait for gradients.

    The wait is the difference between the times of a micro-batch with and without an exchange.
    """
    first, second = (application.seconds(device, where, local, count) for count in (1, 2))
    return (2 * first - second) / application.seconds(device, where, local, accumulation)


def members(ids: Sequence[int], nodes: Sequence[NodeName]) -> tuple[Member, ...]:
    """Return the members of a world whose replicas have one accelerator and one process each."""
    return tuple(
        Member(replica=id, group_rank=rank, processes=1, node=node, address=f"{node}:{id}")
        for rank, (id, node) in enumerate(zip(ids, nodes, strict=True))
    )


def running(
    ids: Sequence[int], nodes: Sequence[NodeName], generation: int, at: datetime
) -> tuple[Replica, ...]:
    """Return replicas that a scaler has just started."""
    return tuple(
        Replica(id=id, node=node, state=ReplicaState.RUNNING, generation=generation, started_at=at)
        for id, node in zip(ids, nodes, strict=True)
    )


def ended(replica: Replica, how: ReplicaExit, at: datetime) -> Replica:
    return replace(replica, state=ReplicaState.EXITED, exit=how, ended_at=at)
