"""How scripts scale, and how much their examples are worth: facts that policies do not know."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from brain.errors import BadInput
from brain.models.efficiency import efficiency

#: Replicas per node, one entry per node.
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKind:
    """A kind of node, with the properties that affect a script."""

    name: str
    #: Compute speed; 1 is the device for which profiles are given.
    speed: float = 1.0
    #: Speed of the network between nodes; 1 is that for which profiles are given.
    network: float = 1.0


class Application(Protocol):
    """A script that can be trained with any number of replicas."""

    @property
    def first_batch(self) -> int:
        """Return the global batch size at which the work is counted: an example in a larger batch
        counts less.
        """
        ...

    @property
    def largest_batch(self) -> int:
        """Return the largest global batch that the script was trained with."""
        ...

    def holds(self, device: DeviceKind) -> int:
        """Return the largest micro-batch, in examples, that a device of a kind holds."""
        ...

    @property
    def epochs(self) -> int:
        """Return the number of epochs of a whole run, as its owner would declare it."""
        ...

    @property
    def examples(self) -> float:
        """Return the work of a whole run, as a number of examples in batches of size
        ``first_batch``.
        """
        ...

    @property
    def restart_seconds(self) -> float | None:
        """Return the seconds that a change of the job's world costs.

        None means that the cluster's value applies.
        """
        ...

    def seconds(self, device: DeviceKind, shape: Shape, local: int, accumulation: int) -> float:
        """Return the seconds of one optimizer step."""
        ...

    def noise(self, share: float, batch: int) -> float:
        """Return the gradient noise scale in examples after ``share`` of the work is done."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A made-up application: the physical step-time model of ``brain.models.step_time``.

        T_c = (step + example m) / speed
        T_n = network / link (1 + growth log2(N / 2)) (N / n)^contention     over nodes
              bus (1 + growth log2(N / 2))                                   within one
        T   = (T_c^overlap + T_n^overlap)^(1 / overlap) + (a - 1) T_c

    There are N replicas on n nodes, and a micro-batches of m examples per step. ``speed`` and
    ``link`` are properties of the device. The noise scale grows geometrically from ``noise_first``
    to ``noise_last`` as work is done.
    """

    #: Work of a whole run, in examples.
    examples: float
    first_batch: int
    largest_batch: int
    largest_local: int
    #: Seconds that each micro-batch takes regardless of its size, and that each example adds.
    step_seconds: float
    example_seconds: float
    #: Seconds to exchange gradients between two nodes, and between two devices of one node.
    network_seconds: float = 0.05
    bus_seconds: float = 0.01
    growth: float = 0.25
    contention: float = 0.2
    overlap: float = 2.0
    #: Gradient noise scale in examples at the beginning and at the end.
    noise_first: float = 1000.0
    noise_last: float = 1000.0
    epochs: int = 10
    restart_seconds: float | None = None

    def check(self, name: str) -> None:
        """Raise for values that no script can have.

        Raises:
            BadInput: a value that must be above 0 is not, or the batches contradict each other.
        """
        above = ("examples", "first_batch", "largest_local", "example_seconds", "overlap")
        for field in (*above, "noise_first", "noise_last", "epochs"):
            _above_zero(f"applications.{name}.{field}", getattr(self, field), or_zero=False)
        for field in ("step_seconds", "network_seconds", "bus_seconds", "growth", "contention"):
            _above_zero(f"applications.{name}.{field}", getattr(self, field), or_zero=True)
        if self.restart_seconds is not None:
            _above_zero(f"applications.{name}.restartSeconds", self.restart_seconds, or_zero=True)
        if self.largest_batch < self.first_batch:
            raise BadInput(
                f"applications.{name}.largestBatch {self.largest_batch} is below firstBatch "
                f"{self.first_batch}; raise it",
                field=f"applications.{name}.largestBatch",
            )

    def holds(self, device: DeviceKind) -> int:
        """Return the largest micro-batch in examples, which is the same on every kind of device."""
        return self.largest_local

    def seconds(self, device: DeviceKind, shape: Shape, local: int, accumulation: int) -> float:
        """Return the seconds of one optimizer step."""
        compute = (self.step_seconds + self.example_seconds * local) / device.speed
        exchange = self._exchange(device, len(shape), sum(shape))
        overlapped = float((compute**self.overlap + exchange**self.overlap) ** (1 / self.overlap))
        return overlapped + (accumulation - 1) * compute

    def _exchange(self, device: DeviceKind, nodes: int, replicas: int) -> float:
        if replicas < 2:
            return 0.0
        grown = 1 + self.growth * math.log2(replicas / 2)
        if nodes == 1:
            return self.bus_seconds * grown
        crowded = float((replicas / nodes) ** self.contention)
        return self.network_seconds / device.network * grown * crowded

    def noise(self, share: float, batch: int) -> float:
        """Return the gradient noise scale in examples once ``share`` of the work is done."""
        return float(self.noise_first * (self.noise_last / self.noise_first) ** share)


#: Synthetic applications, which workloads may name without any tables. Their lengths are those of
#: published workloads: from minutes of a recommender to days of a large classifier on one device.
CATALOGUE: Mapping[str, Profile] = {
    "recommender": Profile(
        examples=4e6,
        first_batch=256,
        largest_batch=32768,
        largest_local=32768,
        step_seconds=0.006,
        example_seconds=2e-6,
        network_seconds=0.03,
        bus_seconds=0.01,
        noise_first=5e3,
        noise_last=5e4,
    ),
    "classifier": Profile(
        examples=4e6,
        first_batch=128,
        largest_batch=4096,
        largest_local=1024,
        step_seconds=0.02,
        example_seconds=4e-4,
        network_seconds=0.06,
        bus_seconds=0.01,
        noise_first=300.0,
        noise_last=4e3,
        epochs=80,
    ),
    "speech": Profile(
        examples=4e5,
        first_batch=20,
        largest_batch=640,
        largest_local=80,
        step_seconds=0.12,
        example_seconds=0.018,
        network_seconds=0.25,
        bus_seconds=0.06,
        noise_first=60.0,
        noise_last=600.0,
        epochs=40,
    ),
    "language": Profile(
        examples=5e5,
        first_batch=12,
        largest_batch=384,
        largest_local=12,
        step_seconds=0.08,
        example_seconds=0.03,
        network_seconds=0.5,
        bus_seconds=0.08,
        noise_first=200.0,
        noise_last=800.0,
        epochs=2,
    ),
    "detector": Profile(
        examples=4e5,
        first_batch=16,
        largest_batch=512,
        largest_local=16,
        step_seconds=0.05,
        example_seconds=0.045,
        network_seconds=0.3,
        bus_seconds=0.08,
        noise_first=80.0,
        noise_last=600.0,
        epochs=50,
    ),
    "large-classifier": Profile(
        examples=2.5e7,
        first_batch=200,
        largest_batch=12800,
        largest_local=200,
        step_seconds=0.05,
        example_seconds=0.006,
        network_seconds=0.2,
        bus_seconds=0.04,
        noise_first=3e3,
        noise_last=3e4,
        epochs=30,
    ),
}


def split(batch: int, replicas: int, largest_local: int) -> tuple[int, int]:
    """Return a worker's local batch size, and the micro-batches per step, for a fixed global batch
    size.

    >>> split(128, 2, 32), split(128, 3, 1024)
    ((32, 2), (43, 1))
    """
    share = -(-batch // replicas)
    accumulation = -(-share // largest_local)
    return max(1, -(-share // accumulation)), accumulation


def progress(
    application: Application,
    device: DeviceKind,
    shape: Shape,
    batch: int,
    share: float,
    *,
    most: int | None = None,
) -> float:
    """Return the work per second with global batch size ``batch``, once ``share`` of the run is
    done.

    A micro-batch is as large as the device holds, but has at most ``most`` examples if given.
    """
    local, accumulation = split(batch, sum(shape), min(application.holds(device), most or batch))
    seconds = application.seconds(device, shape, local, accumulation)
    worth = efficiency(
        batch, first_batch=application.first_batch, noise=application.noise(share, batch)
    )
    return batch / seconds * float(worth)


def _above_zero(field: str, value: float, *, or_zero: bool) -> None:
    if not math.isfinite(value) or value < 0 or (value == 0 and not or_zero):
        bound = "at least 0" if or_zero else "above 0"
        raise BadInput(f"{field} {value:g} must be {bound}; correct it", field=field)
