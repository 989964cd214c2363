"""A job that shards its state over its workers is not shrunk to where a device might be full."""

from dataclasses import replace

import pytest

from brain.types.allocation import Bounds
from brain.types.job import JobDocument, JobId
from brain.types.resources import Resources
from brain.types.telemetry import SHARDED, GpuReading
from tests import builders
from tests.virtual import Laptop

GIB = 2**30
EACH = Resources(cpu_millis=1000, gpus=1)
CARDS = Resources(cpu_millis=8000, memory_bytes=64 * GIB, gpus=4)


class Carded(Laptop):
    """A job on four devices that wait for each other so long that one would be as fast."""

    def __init__(self, state_gib: float, *, told: str | None = None, counted: bool = False) -> None:
        self.state_gib, self.told, self.counted = state_gib, told, counted
        bounds = Bounds(min=1, max=4, start=4)
        super().__init__(
            lambda replicas: 0.2 * replicas,
            cpus=4,
            global_batch=None,
            resources=EACH,
            replicas=bounds,
        )
        self.start()

    def submit(self, document: JobDocument, *, id: str = builders.JOB) -> JobId:
        with self.stores.transaction() as tx:
            tx.nodes.put(replace(builders.node(), capacity=CARDS))
        return super().submit(document, id=id)

    @property
    def used(self) -> int:
        """Bytes of each device: 2 GiB of its own, and its part of the state."""
        return round((2 + self.state_gib / self.size) * GIB)

    def go_on(self, seconds: int) -> None:
        """Train, be read and decided about."""
        for _ in range(seconds // 5):
            waits = 0.2 * (self.size - 1)
            self.also = {
                "local_batch": 16,
                "gns_unavailable": self.told,
                "exchange_wait_seconds": waits,
                "sharded_bytes": round(self.state_gib * GIB / self.size) if self.counted else None,
            }
            card = GpuReading(
                index=0,
                name="L4",
                utilization=0.9,
                memory_used_bytes=self.used,
                memory_total_bytes=24 * GIB,
            )
            second = int(self.now.timestamp())
            reading = builders.host(second, job=self.id, measured_at=self.now, gpus=(card,))
            with self.stores.transaction() as tx:
                tx.telemetry.add([reading], received_at=self.now)
            self.live(5)

    def why_not(self) -> dict[int, str]:
        """Why sizes are not taken."""
        return {one.replicas: one.why_not for one in self.decision.explanation.alternatives}


@pytest.mark.parametrize("told", [f"{SHARDED} (FSDP or tensor parallelism)", None])
def test_a_job_is_shrunk_no_further_than_its_sharded_state_surely_fits(told: str | None):
    here = Carded(40, told=told)
    here.go_on(300)
    if told is None:
        assert here.size == 1, "one device is as fast as four"
        return
    assert here.size == 3
    assert here.why_not()[2] == (
        "the state is sharded over the workers: at this size each worker may hold up to 23 GiB, "
        "but its device has only 24 GiB"
    )


def test_only_the_state_that_is_counted_is_larger_at_smaller_sizes():
    here = Carded(18, counted=True)
    here.go_on(300)
    assert here.size == 1, "20 of 24 GiB; if all of the 6.5 GiB were divided it would be 26"


def test_counted_state_that_does_not_fit_keeps_a_job_larger():
    here = Carded(40, counted=True)
    here.go_on(300)
    assert here.size == 2, "22 GiB, and 42 with one"
    assert (
        "sharded over the workers: at this size each worker may hold up to 42 GiB"
        in here.why_not()[1]
    )


def test_a_part_of_unknown_size_counts_like_all_of_the_memory():
    here = Carded(0, counted=True)
    here.go_on(300)
    assert here.size == 1


def test_a_small_state_keeps_no_job_large_because_it_is_sharded():
    here = Carded(2, told=f"{SHARDED} (DeepSpeed ZeRO)")
    here.go_on(300)
    assert here.size == 1
