"""An oracle that shows which use of a reservation can be reached: it knows each replica's need.

The oracle takes the sizes that the service chooses. From the first second each replica reserves its
true need, with the headroom that the service adds: no plan is needed to learn or to change it.
"""

from dataclasses import replace

from benchmarks.resources.dlrm import Amount, Job, Size
from benchmarks.resources.governed import Governed
from benchmarks.resources.playing import Reading
from brain.models.resources import cpu, host_memory
from brain.models.resources.servers import EASY

#: Seconds of growth for which a server's memory suffices.
_AHEAD = 600.0
_ROUNDS = 20


class Known:
    """The sizes of the service, and amounts that follow from the true properties of a job."""

    reads_seconds = Governed.reads_seconds

    def __init__(self, job: Job) -> None:
        self._job, self._service, self._steps = job, Governed(job.steps), 0.0
        #: Processors of each worker and server, and steps per second, by the number of each.
        self._needs: dict[tuple[int, int], tuple[float, float, float]] = {}

    def begin(self, declared: Size) -> Size:
        return self._provided(self._service.begin(declared))

    def see(self, reading: Reading) -> Size:
        self._steps = reading.steps
        return self._provided(self._service.see(reading))

    def killed(self, at: float, server: int) -> tuple[Size, float]:
        size, seconds = self._service.killed(at, server)
        return self._provided(size), seconds

    def started(self, at: float) -> None:
        self._service.started(at)

    def stops(self, had: Size, has: Size) -> bool:
        return self._service.stops(had, has)

    def _provided(self, size: Size) -> Size:
        """Return a size with the amounts that its replicas need."""
        key = size.workers, size.servers
        if key not in self._needs:
            self._needs[key] = self._needed(size)
        worker, server, rate = self._needs[key]
        later = min(self._job.steps, self._steps + _AHEAD * rate)
        held = float(self._job.memory(later, size.servers).max())
        return replace(
            size,
            worker=Amount(cpus=worker, memory_bytes=host_memory.request(self._job.worker_bytes)),
            server=Amount(cpus=server, memory_bytes=host_memory.request(held)),
        )

    def _needed(self, size: Size) -> tuple[float, float, float]:
        """Return the processors of the busiest worker and server with headroom, and the rate."""
        ample = Amount(cpus=1e3, memory_bytes=0.0)
        size = replace(size, worker=ample, server=ample)
        for _ in range(_ROUNDS):
            pace = self._job.pace(size)
            worker = cpu.MARGIN * float(pace.worker_cpus.max())
            server = float(pace.server_cpus.max()) / EASY
            size = replace(
                size, worker=replace(ample, cpus=worker), server=replace(ample, cpus=server)
            )
        return worker, server, self._job.pace(size).steps_per_second
