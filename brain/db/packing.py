"""Readings of accelerators and storage as bytes, without fields that every report repeats.

An accelerator's index, name and size are stored once, with its device. The readings of all
accelerators are stored column by column in MessagePack. A value that is a whole number of
hundredths, thousandths or tenths, as drivers report them, is stored as that whole number. Nothing
is rounded.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

import msgspec

from brain.types.telemetry import GpuReading, ReplicaReading, StorageReading

#: Index, name, and bytes of memory.
Device = tuple[int, str, int]
Devices = tuple[Device, ...]

_device = attrgetter("index", "name", "memory_total_bytes")
_columns = ("utilization", "power_watts", "temperature_celsius")
_SCALES = (100, 1000, 10)
_figures = attrgetter("memory_used_bytes", *_columns)
_STORAGE = tuple(field.name for field in fields(StorageReading))
_storage = attrgetter(*_STORAGE)
_REPLICA = tuple(field.name for field in fields(ReplicaReading))
_replica = attrgetter(*_REPLICA)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def devices_of(gpus: Iterable[GpuReading]) -> Devices:
    """Return the fields of accelerators that every report repeats: index, name and size."""
    return tuple(map(_device, gpus))


def packed_gpus(gpus: Iterable[GpuReading]) -> bytes:
    """Return the readings of accelerators as bytes, without the fields that
    ``devices_of`` returns.
    """
    columns = tuple(zip(*map(_figures, gpus), strict=True))
    if not columns:
        return b""
    used, *figures = columns
    scaled = [_scaled(of, scale) for of, scale in zip(figures, _SCALES, strict=True)]
    return _encode([used, *scaled])


def gpus_of(devices: Sequence[Device], packed: bytes) -> tuple[GpuReading, ...]:
    if not packed:
        return ()
    used, *scaled = _decode(packed)
    figures = [_unscaled(of, scale) for of, scale in zip(scaled, _SCALES, strict=True)]
    return tuple(
        GpuReading(
            index=index,
            name=name,
            memory_total_bytes=total,
            memory_used_bytes=in_use,
            utilization=utilization,
            power_watts=watts,
            temperature_celsius=celsius,
        )
        for (index, name, total), in_use, utilization, watts, celsius in zip(
            devices, used, *figures, strict=True
        )
    )


def packed_storage(reading: StorageReading | None) -> bytes | None:
    """Return a reading of storage, packed field by field."""
    return None if reading is None else _encode(_storage(reading))


def storage_of(packed: bytes | None) -> StorageReading | None:
    if packed is None:
        return None
    return StorageReading(**dict(zip(_STORAGE, _decode(packed), strict=True)))


def packed_replicas(readings: Sequence[ReplicaReading]) -> bytes | None:
    """Return readings of replicas, packed field by field; None for no readings."""
    return _encode([_replica(each) for each in readings]) if readings else None


def replicas_of(packed: bytes | None) -> tuple[ReplicaReading, ...]:
    """Unpack the readings of replicas; for None, return no readings."""
    each = () if packed is None else _decode(packed)
    return tuple(ReplicaReading(**dict(zip(_REPLICA, one, strict=True))) for one in each)


def _scaled(values: Iterable[float | None], scale: int) -> list[Any]:
    return [None if value is None else _whole(value, scale) for value in values]


def _whole(value: float, scale: int) -> int | float:
    if not abs(value) < 1e9:
        return float(value)
    whole = round(value * scale)
    return whole if whole / scale == value else float(value)


def _unscaled(values: Iterable[Any], scale: int) -> list[float | None]:
    return [value / scale if isinstance(value, int) else value for value in values]
