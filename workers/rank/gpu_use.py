"""What one GPU does: of NVIDIA by NVML, of AMD by `amd_gpu_use.py`. A missing NVML, or a driver of another version, is silent.

A function that a GPU does not have is called once. A GPU that has fallen off the bus is reported as lost, and not called again.
"""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from ..messages.system_metrics import Reading
from .amd_gpu_use import open_amd_gpu

#: Metric → its value, from NVML and the GPU's handle. Power is in mW there.
_VALUES: Final[dict[str, Callable[[Any, Any], float]]] = {
    "gpu_utilization": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "gpu_memory": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
    "gpu_power": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "gpu_temperature": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    "gpu_clock": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "gpu_ecc_errors": lambda nvml, gpu: nvml.nvmlDeviceGetTotalEccErrors(
        gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    ),
}
#: Metric → NVML's field, which counts KiB.
_LINKS: Final = {
    "nvlink_send": "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX",
    "nvlink_receive": "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX",
}
#: The scope of a field that sums over all links.
_ALL_LINKS: Final = 0xFFFFFFFF
#: Errors of a GPU that are taken at one reading.
_MOST_XIDS: Final = 16


class GpuUse(Protocol):
    """Reads what one GPU does."""

    def read(self) -> Reading:
        """Values and counters of `system_metrics.RANK` whose names begin with `gpu` or `nvlink`; what cannot be read is left out."""

    def close(self) -> None:
        """Free what the vendor's library holds for this GPU."""


class NvidiaGpuUse:
    """`gpu`: its number or UUID, as Ray has it. `nvml`: the module `pynvml`."""

    def __init__(self, nvml: Any, gpu: str) -> None:
        """Raises `nvml.NVMLError` where NVML or the GPU cannot be used."""
        self._nvml = nvml
        nvml.nvmlInit()
        try:
            by_number = gpu.isdigit()
            self._gpu = nvml.nvmlDeviceGetHandleByIndex(int(gpu)) if by_number else nvml.nvmlDeviceGetHandleByUUID(gpu)
        except nvml.NVMLError:
            nvml.nvmlShutdown()
            raise
        self._missing: set[str] = set()
        self._lost = False
        self._events = self._watch_events()

    def _watch_events(self) -> Any:
        """A set of events that gets the GPU's errors; None where NVML gives none."""
        nvml = self._nvml
        with contextlib.suppress(nvml.NVMLError):
            events = nvml.nvmlEventSetCreate()
            nvml.nvmlDeviceRegisterEvents(self._gpu, nvml.nvmlEventTypeXidCriticalError, events)
            return events
        return None

    def read(self) -> Reading:
        """Values and counters of `system_metrics.RANK` whose names begin with `gpu` or `nvlink`."""
        found = Reading()
        for name, value in _VALUES.items():
            self._take(found.values, name, partial(value, self._nvml, self._gpu))
        for name, field in _LINKS.items():
            self._take(found.counters, name, partial(self._link, field))
        if self._events is not None:
            self._take(found.values, "gpu_xid", self._newest_xid)
        found.values["gpu_lost"] = float(self._lost)
        return found

    def close(self) -> None:
        """Free what NVML holds for this GPU."""
        nvml = self._nvml
        with contextlib.suppress(nvml.NVMLError):
            if self._events is not None:
                nvml.nvmlEventSetFree(self._events)
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()

    def _take(self, into: dict[str, float], name: str, read: Callable[[], float]) -> None:
        """Read one metric, unless the GPU lacks it or is lost. Other errors leave it out this time."""
        nvml = self._nvml
        if name in self._missing or (self._lost and name != "gpu_xid"):
            return
        try:
            into[name] = float(read())
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_NOT_SUPPORTED:
                self._missing.add(name)
            elif error.value == nvml.NVML_ERROR_GPU_IS_LOST:
                self._lost = True

    def _link(self, field: str) -> float:
        """Bytes over all links."""
        nvml = self._nvml
        (value,) = nvml.nvmlDeviceGetFieldValues(self._gpu, [(getattr(nvml, field), _ALL_LINKS)])
        if value.nvmlReturn != nvml.NVML_SUCCESS:
            raise nvml.NVMLError(value.nvmlReturn)
        return float(value.value.ullVal) * 1024

    def _newest_xid(self) -> float:
        """The number of the newest error since the last reading; 0: there was none."""
        nvml, newest = self._nvml, 0
        for _ in range(_MOST_XIDS):
            try:
                newest = int(nvml.nvmlEventSetWait_v2(self._events, 0).eventData)
            except nvml.NVMLError as error:
                if error.value != nvml.NVML_ERROR_TIMEOUT:
                    raise
                break
        return float(newest)


def open_gpu(gpu: str) -> GpuUse | None:
    """None without such a GPU, or without the library of its vendor: NVML first, then AMD SMI."""
    return _open_nvidia_gpu(gpu) or open_amd_gpu(gpu)


def _open_nvidia_gpu(gpu: str) -> NvidiaGpuUse | None:
    """None without NVML, without such a GPU, or with a driver of another version."""
    try:
        import pynvml
    except ImportError:
        return None
    with contextlib.suppress(pynvml.NVMLError):
        return NvidiaGpuUse(pynvml, gpu)
    return None
