"""What one GPU of AMD does, by AMD SMI's Python package, which comes with ROCm (https://rocm.docs.amd.com/projects/amdsmi).

A missing package, library or driver is silent: there are no values then. A function that a GPU does not have is called once.
"""

import contextlib
from collections.abc import Callable
from typing import Any, Final

from ..messages.system_metrics import Reading

#: What AMD SMI answers where a GPU lacks a value.
_MISSING: Final = "N/A"
#: The power of the whole socket, in W. Which of these a GPU has depends on its generation and on ROCm's version.
_POWERS: Final = ("socket_power", "current_socket_power", "average_socket_power")
#: The clock of the compute units, in MHz. The first is the name before ROCm 6.2.
_CLOCKS: Final = ("cur_clk", "clk")


class AmdGpuUse:
    """`gpu`: its number or UUID, as Ray has it and HIP counts it. `smi`: the module `amdsmi`."""

    def __init__(self, smi: Any, gpu: str) -> None:
        """Raises `smi.AmdSmiException` where AMD SMI or the GPU cannot be used."""
        self._smi = smi
        smi.amdsmi_init()
        try:
            self._gpu = _handle(smi, gpu)
        except smi.AmdSmiException:
            smi.amdsmi_shut_down()
            raise
        self._values: dict[str, Callable[[], Any]] = {
            "gpu_utilization": lambda: smi.amdsmi_get_gpu_activity(self._gpu)["gfx_activity"],
            "gpu_memory": lambda: smi.amdsmi_get_gpu_memory_usage(self._gpu, smi.AmdSmiMemoryType.VRAM),
            "gpu_power": lambda: _first(smi.amdsmi_get_power_info(self._gpu), _POWERS),
            "gpu_temperature": self._temperature,
            "gpu_clock": lambda: _first(smi.amdsmi_get_clock_info(self._gpu, smi.AmdSmiClkType.GFX), _CLOCKS),
            "gpu_ecc_errors": lambda: smi.amdsmi_get_gpu_total_ecc_count(self._gpu)["uncorrectable_count"],
        }

    def read(self) -> Reading:
        """Values of `system_metrics.RANK` whose names begin with `gpu`. Xid errors are NVIDIA's, and links are not read."""
        found = Reading()
        for name, value in list(self._values.items()):
            try:
                read = value()
            except self._smi.AmdSmiException as error:
                if not self._is_not_supported(error):
                    continue  # left out this time
                read = _MISSING
            if read == _MISSING:
                del self._values[name]
            else:
                found.values[name] = float(read)
        return found

    def close(self) -> None:
        """Free what AMD SMI holds."""
        with contextlib.suppress(self._smi.AmdSmiException):
            self._smi.amdsmi_shut_down()

    def _is_not_supported(self, error: Any) -> bool:
        if not isinstance(error, self._smi.AmdSmiLibraryException):
            return False
        return bool(error.get_error_code() == self._smi.amdsmi_wrapper.AMDSMI_STATUS_NOT_SUPPORTED)

    def _temperature(self) -> Any:
        """That of the hottest point, in °C."""
        smi = self._smi
        sensor, metric = smi.AmdSmiTemperatureType.JUNCTION, smi.AmdSmiTemperatureMetric.CURRENT
        return smi.amdsmi_get_temp_metric(self._gpu, sensor, metric)


def _first(found: dict[str, Any], names: tuple[str, ...]) -> Any:
    """The first of these values that there is."""
    return next((found[name] for name in names if found.get(name, _MISSING) != _MISSING), _MISSING)


def _handle(smi: Any, gpu: str) -> Any:
    """AMD SMI's own order of the GPUs may differ from HIP's, which Ray's numbers follow. Raises `smi.AmdSmiException`."""
    if not hasattr(smi, "amdsmi_get_gpu_enumeration_info"):
        raise smi.AmdSmiException("this version does not say which GPU is which of HIP's")
    key, wanted = ("hip_id", int(gpu)) if gpu.isdigit() else ("hip_uuid", gpu)
    for handle in smi.amdsmi_get_processor_handles():
        if smi.amdsmi_get_gpu_enumeration_info(handle)[key] == wanted:
            return handle
    raise smi.AmdSmiException(f"there is no GPU {gpu}")


def open_amd_gpu(gpu: str) -> AmdGpuUse | None:
    """None without AMD SMI, with one that is too old to find the GPU by its number, or without such a GPU."""
    try:
        import amdsmi
    except Exception:  # noqa: BLE001  # where its library is missing, versions of the package raise different errors
        return None
    with contextlib.suppress(amdsmi.AmdSmiException):
        return AmdGpuUse(amdsmi, gpu)
    return None
