"""Computes the resource use of a world from readings of its workers."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from brain.estimates.roles import Part
from brain.models.estimate.past import WorldUse
from brain.types.telemetry import HostSample

#: Most intervals without a reading that are filled in.
_LONGEST_GAP = 60


def with_parts(use: WorldUse, parts: Sequence[Part]) -> WorldUse:
    """Return the resource use of a world with more readings of its workers; ``parts`` must not be
    empty.
    """
    seen = [part.reading for part in parts]
    use = _with_memory(_with_cpu(use, parts), parts)
    return _with_stalls(_with_devices(_with_network(use, seen), seen), seen)


def _with_stalls(use: WorldUse, readings: Sequence[HostSample]) -> WorldUse:
    seen = [reading.storage for reading in readings if reading.storage is not None]
    stalls = [one.io_stalled_share for one in seen if one.io_stalled_share is not None]
    if not stalls:
        return use
    total = use.io_readings + len(stalls)
    mean = (use.io_stalled_share * use.io_readings + sum(stalls)) / total
    return replace(use, io_stalled_share=mean, io_readings=total)


def _with_cpu(use: WorldUse, parts: Sequence[Part]) -> WorldUse:
    """Count only the busiest node at each instant: ranks are alike and wait for the slowest."""
    busiest: dict[float, float] = defaultdict(float)
    for part in parts:
        busiest[part.at_seconds] = max(busiest[part.at_seconds], part.cpu_millis)
    cpu = use.cpu
    for second, millis in sorted(busiest.items()):
        cpu = cpu.added([millis], at_seconds=second)
    return replace(use, cpu=cpu.compact())


def _with_memory(use: WorldUse, parts: Sequence[Part]) -> WorldUse:
    def longer(known: tuple[float, ...], seconds: int, most: int) -> tuple[float, ...]:
        return _maxima(known, parts, use.read_at_seconds, seconds)[-most:]

    return replace(
        use,
        memory_bytes=max(use.memory_bytes, *(part.memory_bytes for part in parts)),
        hourly_bytes=longer(use.hourly_bytes, 3600, 24),
        ten_minutely_bytes=longer(use.ten_minutely_bytes, 600, 48),
        minutely_bytes=longer(use.minutely_bytes, 60, 60),
        read_at_seconds=max(use.read_at_seconds, parts[-1].reading.measured_at.timestamp()),
    )


def _maxima(
    known: tuple[float, ...], parts: Sequence[Part], read_at_seconds: float, seconds: int
) -> tuple[float, ...]:
    """Return the highest use of each interval of ``seconds``; an interval without a reading
    repeats the last.
    """
    found, last = list(known) if read_at_seconds else [], read_at_seconds // seconds
    for part in parts:
        interval = part.reading.measured_at.timestamp() // seconds
        if not found:
            found.append(part.memory_bytes)
        elif interval > last:
            missed = min(int(interval - last) - 1, _LONGEST_GAP)
            found += [found[-1]] * missed + [part.memory_bytes]
        else:
            found[-1] = max(found[-1], part.memory_bytes)
        last = max(last, interval)
    return tuple(found)


def _with_network(use: WorldUse, readings: Sequence[HostSample]) -> WorldUse:
    before, more = use.readings, len(readings)
    sent = sum(one.network_send_bytes_per_second for one in readings)
    received = sum(one.network_receive_bytes_per_second for one in readings)
    total = before + more
    return replace(
        use,
        sent_bytes_per_second=(use.sent_bytes_per_second * before + sent) / total,
        received_bytes_per_second=(use.received_bytes_per_second * before + received) / total,
    )


def _with_devices(use: WorldUse, readings: Sequence[HostSample]) -> WorldUse:
    seen = [gpu for reading in readings for gpu in reading.gpus]
    if not seen:
        return use
    used = max(gpu.memory_used_bytes for gpu in seen)
    total = max(gpu.memory_total_bytes for gpu in seen)
    return replace(
        use,
        device_bytes=max(float(used), use.device_bytes or 0.0),
        device_total_bytes=max(float(total), use.device_total_bytes or 0.0),
    )
