"""The rows of an estimate: the job's needs on each kind of accelerator at each size."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from brain.errors import Undetermined
from brain.models.estimate.needs import Needs
from brain.models.estimate.past import PoolCapacity
from brain.models.estimate.pooled import examples_per_step
from brain.models.fitting import Z90
from brain.models.job import JobModel
from brain.models.resources.use import USABLE
from brain.types.estimate import Band, SizeEstimate, Work
from brain.types.job import JobDocument
from brain.types.recommendation import Prediction
from brain.typeset import count

#: Number of sizes above which only doublings are shown.
_ROWS = 12
#: Ratio of a band's upper to lower end above which its size counts as exploring.
_WIDE = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """Prices of accelerators per hour, by kind; ``*`` is the price of every kind that is not
    listed.
    """

    prices: Mapping[str, float]
    currency: str = "€"

    def price(self, accelerator: str) -> float | None:
        """Return the price per accelerator and hour; None if no price was given."""
        return self.prices.get(accelerator, self.prices.get("*"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeQuestion:
    """The inputs from which a row is computed."""

    document: JobDocument
    model: JobModel | None
    needs: Needs
    work: Work | None
    market: PriceList


def sizes(asked: SizeQuestion, rooms: Sequence[PoolCapacity]) -> list[SizeEstimate]:
    """Return the rows of every kind that the job may use: kinds in the given order, sizes
    ascending.
    """
    return [
        _row(asked, room, replicas)
        for room in rooms
        for replicas in thinned(asked.document.replicas.sizes())
    ]


def thinned(allowed: Iterable[int]) -> list[int]:
    """Return the sizes to show: all sizes if there are few; otherwise the first size, its doublings
    and the last size.

    >>> thinned(range(1, 6)), thinned(range(2, 101))
    ([1, 2, 3, 4, 5], [2, 4, 8, 16, 32, 64, 100])
    """
    every = list(allowed)
    if len(every) <= _ROWS:
        return every
    found = [every[0]]
    for size in every:
        if size >= 2 * found[-1]:
            found.append(size)
    return [*found, every[-1]] if found[-1] != every[-1] else found


def accelerators(document: JobDocument) -> float:
    """Return the number of accelerators of a replica; without accelerators, the number of its
    processors; without both, the number of its processes.
    """
    each = document.allocation.each
    return float(each.gpus) or each.cpu_millis / 1000 or float(document.processes_per_replica)


def _row(asked: SizeQuestion, room: PoolCapacity, replicas: int) -> SizeEstimate:
    nodes = -(-replicas // max(1, room.per_node))
    row = SizeEstimate(
        accelerator=room.accelerator,
        replicas=replicas,
        nodes=nodes,
        accelerators=accelerators(asked.document) * replicas,
        cpu_millis=asked.needs.cpu_millis(replicas),
        memory_bytes=asked.needs.memory_bytes(None),
        fits=replicas <= room.largest,
        fits_now=replicas <= room.now,
    )
    if asked.model is None:
        return replace(row, exploring=True, undetermined="no similar job was measured")
    try:
        rate = asked.model.predict(replicas, nodes=nodes, accelerator=room.accelerator)
    except Undetermined as unknown:
        return replace(row, exploring=True, undetermined=str(unknown))
    return _timed(asked, row, rate, asked.model)


def _timed(
    asked: SizeQuestion, row: SizeEstimate, rate: Prediction, model: JobModel
) -> SizeEstimate:
    """Return the row with the values that follow from a throughput."""
    examples = examples_per_step(model, row.replicas)
    seconds = _finish(asked, rate, examples)
    hours = None if seconds is None else _times(seconds, row.accelerators / 3600)
    price = asked.market.price(row.accelerator)
    batch = examples / (row.replicas * asked.document.processes_per_replica)
    device = asked.needs.device_bytes(row.accelerator, batch) if batch > 0 else None
    return replace(
        row,
        throughput=rate,
        efficiency=model.worth(row.replicas),
        finish_seconds=seconds,
        accelerator_hours=hours,
        cost=None if hours is None or price is None else _times(hours, price),
        network_bytes_per_second=asked.needs.network(
            row.nodes, examples / rate.examples_per_second, rate.examples_per_second
        ),
        memory_bytes=asked.needs.memory_bytes(seconds.value if seconds else None),
        device_memory_bytes=device[0] if device else None,
        exploring=rate.exploring or rate.high > _WIDE * rate.low,
        why_not=_too_large(device) if device else "",
    )


def _finish(asked: SizeQuestion, rate: Prediction, examples: float) -> Band | None:
    """Return the seconds of training: log-normal work divided by a log-normal rate.

    Declared steps are made at any batch: so if the batch grows with the world, the work in examples
    grows, too.
    """
    if asked.work is None or asked.model is None:
        return None
    amount = asked.work.amount
    present = asked.model.present.examples_per_step
    grown = examples / present if present and asked.work.in_steps else 1.0
    middle = amount.value * grown / rate.examples_per_second
    wide = Z90 * math.hypot(_deviation(amount), _deviation_of(rate))
    return Band(value=middle, low=middle * math.exp(-wide), high=middle * math.exp(wide))


def deviation(band: Band) -> float:
    """Return the standard deviation of the logarithm of a quantity with this 90 % band."""
    return math.log(band.high / band.low) / (2 * Z90) if band.low > 0 else math.inf


def _deviation(band: Band) -> float:
    return 0.0 if band.low == band.high else deviation(band)


def _deviation_of(rate: Prediction) -> float:
    return math.log(rate.high / rate.low) / (2 * Z90)


def _times(band: Band, factor: float) -> Band:
    return Band(value=band.value * factor, low=band.low * factor, high=band.high * factor)


def _too_large(device: tuple[Band, float]) -> str:
    needed, has = device
    if needed.value <= USABLE * has:
        return ""
    gib = 2**30
    return (
        f"a device would need {needed.value / gib:.1f} GiB, but has only {has / gib:.1f} GiB; "
        "take more replicas or accumulate gradients, so that the local batch becomes smaller"
    )


def described(row: SizeEstimate) -> str:
    """Return a phrase for people that names the row."""
    return f"{count(row.replicas, 'replica')} on {row.accelerator}"
