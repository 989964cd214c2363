"""Reads the accelerators of this machine; a machine without accelerators is not an error."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from brain.types.telemetry import GpuReading

#: Drivers return numbers from this one on for values that they cannot read.
_BLANK = 0x7FFF_FFFF_FFFF_FFF0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSight:
    """One reading of the GPUs; ``unavailable`` describes readings that this machine cannot give."""

    readings: tuple[GpuReading, ...] = ()
    unavailable: tuple[str, ...] = ()


class Gpus(Protocol):
    """Reads all accelerators of a machine."""

    def read(self) -> GpuSight:
        """Read all accelerators now; never raise. ``unavailable`` lists failed readings."""
        ...


@dataclass(frozen=True, slots=True)
class NoGpus:
    """A machine without readable accelerators; ``why`` is one sentence."""

    why: str

    def read(self) -> GpuSight:
        """Return no readings, and the reason."""
        return GpuSight(unavailable=(f"gpu: {self.why}",))


class NvidiaGpus:
    """Reads NVIDIA GPUs through NVML; ``nvml`` is the initialised module ``pynvml``."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml

    def read(self) -> GpuSight:
        """Read all devices; if one fails (for example, by falling off the bus), read the others."""
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as lost:
            return GpuSight(unavailable=(f"gpu: {lost}",))
        readings: list[GpuReading] = []
        unavailable: list[str] = []
        for index in range(count):
            try:
                readings.append(self._device(index, unavailable))
            except self._nvml.NVMLError as lost:
                unavailable.append(f"gpu {index}: {lost}")
        return GpuSight(readings=tuple(readings), unavailable=tuple(unavailable))

    def _device(self, index: int, unavailable: list[str]) -> GpuReading:
        nvml = self._nvml
        device = nvml.nvmlDeviceGetHandleByIndex(index)
        memory = nvml.nvmlDeviceGetMemoryInfo(device)
        name = nvml.nvmlDeviceGetName(device)
        percent = self._value(lambda: nvml.nvmlDeviceGetUtilizationRates(device).gpu)
        if percent is None:
            # A device that is cut into instances (MIG) has no utilization of its own.
            unavailable.append(f"gpu {index}: utilization is not supported")
        milliwatts = self._value(lambda: nvml.nvmlDeviceGetPowerUsage(device))
        return GpuReading(
            index=index,
            name=name.decode() if isinstance(name, bytes) else name,
            utilization=(percent or 0.0) / 100,
            memory_used_bytes=int(memory.used),
            memory_total_bytes=int(memory.total),
            power_watts=None if milliwatts is None else milliwatts / 1000,
            temperature_celsius=self._value(
                lambda: nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU)
            ),
        )

    def _value(self, read: Callable[[], float]) -> float | None:
        with suppress(self._nvml.NVMLError):
            value = float(read())
            return value if 0 <= value < _BLANK else None
        return None


def find_gpus() -> Gpus:
    """Return a reader of this machine's accelerators; ``NoGpus`` if none can be read."""
    try:
        import pynvml
    except ImportError:
        return NoGpus("nvidia-ml-py is not installed; pip install 'elastic-brain[host]'")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as none:
        return NoGpus(f"no NVIDIA driver ({none})")
    return NvidiaGpus(pynvml)
