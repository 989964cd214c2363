"""What probes and collectors would have sent of the seeded jobs."""

import math
from datetime import datetime, timedelta

from brain.ports import Transaction
from brain.types.job import JobId
from brain.types.resources import NodeName
from brain.types.telemetry import HostSample, Phase, SampleSource, SourceId, ThroughputSample

NODE = NodeName("laptop")
#: Seconds of a throughput sample's window.
WINDOW = 5
#: Samples are stored so far ahead that a job is fresh as long as the tests run.
AHEAD = timedelta(minutes=40)
#: Examples per second at each size of the job digits.
RATE = {1: 512.0, 2: 968.0, 3: 1370.0, 4: 1405.0}


def steps_of(
    tx: Transaction,
    id: JobId,
    epoch: int,
    size: int,
    begin: datetime,
    end: datetime,
    now: datetime,
    *,
    slow: dict[int, float] | None = None,
    waits: float = 0.0,
) -> None:
    """Windows of every rank; the noise is a sum of sines, the same in every run."""
    count = int((end - begin).total_seconds() // WINDOW)
    found = []
    paces = [(slow or {}).get(rank, 1.0) for rank in range(size)]
    for rank, own in enumerate(paces):
        place = SampleSource(
            job=id, source=SourceId(f"{id}-{epoch}-{rank}"), replica=rank, local_rank=0,
            rank=rank, epoch=epoch, generation=epoch - 1,
        )  # fmt: skip
        for number in range(count):
            seconds = 256 / RATE[size] * (1 + _noise(number + 7 * rank) * 0.012)
            seconds *= own
            steps = max(1, round(WINDOW / seconds))
            wait = waits or 0.04 + 0.02 * (size == 4) * 10 + 0.006 * _noise(number)
            found.append(
                ThroughputSample(
                    place=place,
                    measured_at=begin + timedelta(seconds=(number + 1) * WINDOW),
                    sequence=number,
                    phase=Phase.TRAINING,
                    nodes=1,
                    replicas=size,
                    processes=size,
                    accelerator="cpu",
                    local_batch=256 // size,
                    accumulation=1,
                    steps=steps,
                    step=number * steps,
                    step_seconds=seconds,
                    step_seconds_mean=seconds,
                    data_wait_seconds=seconds * wait,
                    # Every step waits for the slowest rank.
                    examples_per_second=256 / size / (seconds * max(paces) / own),
                )
            )
    tx.telemetry.add(found, received_at=now)


def machine_of(
    tx: Transaction,
    id: JobId,
    begin: datetime,
    end: datetime,
    sizes: tuple[int, ...],
    ago: list[timedelta],
) -> None:
    """The machine every ten seconds, busier with more replicas."""
    found = []
    for number in range(int((end + AHEAD - begin).total_seconds() // 10)):
        at = begin + timedelta(seconds=10 * number)
        size = [size for size, since in zip(sizes, ago, strict=True) if end - since <= at][-1]
        used = int(1000 * size * (0.86 + 0.03 * _noise(number)))
        memory = int((1.1 + 0.45 * size + 0.02 * _noise(number)) * (1 << 30))
        found.append(
            HostSample(
                job=id,
                source=SourceId(f"host-{id}"),
                node=NODE,
                measured_at=at,
                sequence=number,
                cpu_millis=used + 300,
                cpu_capacity_millis=8000,
                memory_bytes=memory + (6 << 30),
                memory_capacity_bytes=32 << 30,
                job_cpu_millis=used,
                job_memory_bytes=memory,
                network_receive_bytes_per_second=0.0,
                network_send_bytes_per_second=0.0,
                disk_read_bytes_per_second=0.0,
                disk_write_bytes_per_second=0.0,
            )
        )
    tx.telemetry.add(found, received_at=end)


def _noise(number: int) -> float:
    return math.sin(number * 1.7) * 0.6 + math.sin(number * 0.31) + math.sin(number * 4.1) * 0.5
