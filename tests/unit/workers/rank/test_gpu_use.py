"""What one GPU does, by NVML's answers in `tests/data/nvml.json`: a module of this name answers by them."""

import ctypes
import json
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pynvml
import pytest

from shardyard.workers.messages.system_metrics import RANK, Rates
from shardyard.workers.rank.gpu_use import NvidiaGpuUse, open_gpu

TRACES: Final = json.loads((Path(__file__).parents[3] / "data" / "nvml.json").read_text())["gpus"]
MIB: Final = 1 << 20


class Nvml:
    """The module `pynvml`, with the functions of one trace. Its constants and errors are the real ones."""

    def __init__(self, gpu: str) -> None:
        self.answers: dict[str, list[Any]] = {name: list(values) for name, values in TRACES[gpu].items()}
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml") or name.startswith("nvmlEventType"):
            return getattr(pynvml, name)
        assert hasattr(pynvml, name), f"the package has no {name}"
        return lambda *args: self.answer(name, args)

    def answer(self, name: str, args: tuple[Any, ...]) -> Any:
        self.calls[name] += 1
        values = self.answers.get(name, [name])
        value = values.pop(0) if len(values) > 1 else values[0]
        if isinstance(value, dict) and "error" in value:
            raise pynvml.NVMLError(value["error"])
        if name == "nvmlDeviceGetFieldValues":
            return [field_value(value[str(field)]) for field, _ in args[1]]
        return SimpleNamespace(**value) if isinstance(value, dict) else value


def field_value(count: int) -> Any:
    value = pynvml.c_nvmlFieldValue_t()
    value.nvmlReturn, value.value.ullVal = pynvml.NVML_SUCCESS, count
    assert isinstance(value, ctypes.Structure)
    return value


def two_samples(nvml: Nvml) -> list[dict[str, float]]:
    gpu, rates = NvidiaGpuUse(nvml, "0"), Rates()
    return [rates.of(gpu.read(), now) for now in (100.0, 102.0)]


def test_all_values_of_a_gpu() -> None:
    first, second = two_samples(Nvml("h100"))
    assert first == {
        "gpu_utilization": 97,
        "gpu_memory": 75e9,
        "gpu_power": 689.4,
        "gpu_temperature": 64,
        "gpu_clock": 1980,
        "gpu_ecc_errors": 0,
        "gpu_xid": 0,
        "gpu_lost": 0,
    }
    assert second["gpu_xid"] == 94, "the newest of two"
    assert second["gpu_ecc_errors"] == 2
    assert second.keys() <= RANK.keys()


def test_links_count_kib_from_one_sample_to_the_next() -> None:
    nvml = Nvml("h100")
    nvml.answers["nvmlDeviceGetFieldValues"] = [{"138": 0, "139": 0}] * 2 + [{"138": 2048, "139": 4096}]
    _, second = two_samples(nvml)
    assert (second["nvlink_send"], second["nvlink_receive"]) == pytest.approx((MIB, 2 * MIB), rel=1e-3)


def test_what_a_gpu_lacks_is_left_out_and_called_once() -> None:
    nvml = Nvml("l4")
    for sample in two_samples(nvml):
        assert sample.keys() == {"gpu_utilization", "gpu_memory", "gpu_temperature", "gpu_clock", "gpu_lost"}
    assert nvml.calls["nvmlDeviceGetPowerUsage"] == nvml.calls["nvmlDeviceGetTotalEccErrors"] == 1
    assert nvml.calls["nvmlDeviceGetTemperature"] == 2


def test_a_gpu_that_falls_off_the_bus_is_reported_and_not_called_again() -> None:
    nvml = Nvml("fallen off the bus")
    first, second = two_samples(nvml)
    assert (first["gpu_lost"], first["gpu_utilization"]) == (0, 99)
    assert second == {"gpu_lost": 1, "gpu_xid": 79}
    assert nvml.calls["nvmlDeviceGetPowerUsage"] == 1


def test_what_nvml_holds_is_freed() -> None:
    nvml = Nvml("h100")
    NvidiaGpuUse(nvml, "GPU-8a1b").close()
    assert nvml.calls["nvmlDeviceGetHandleByUUID"] == nvml.calls["nvmlEventSetFree"] == nvml.calls["nvmlShutdown"] == 1


def test_a_gpu_that_is_not_there_leaves_nvml_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml("no such GPU")
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert open_gpu("7") is None
    assert nvml.calls["nvmlShutdown"] == 1


@pytest.mark.parametrize("machine", ["driver of another version", "no driver"])
def test_without_a_usable_driver_there_is_no_gpu_and_no_word(
    machine: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(machine))
    assert open_gpu("0") is None
    assert capfd.readouterr() == ("", "")


def test_without_the_package_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert open_gpu("GPU-0") is None
