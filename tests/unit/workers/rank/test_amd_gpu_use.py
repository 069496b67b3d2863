"""What one GPU of AMD does, by the answers of AMD SMI in `tests/data/amdsmi.json`: a module of that name answers by them.

The package needs ROCm's library, so its names and errors are written here as its source has them.
"""

import json
import sys
from collections import Counter
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from shardyard.workers.messages.system_metrics import RANK, Rates
from shardyard.workers.rank.amd_gpu_use import AmdGpuUse, open_amd_gpu
from shardyard.workers.rank.gpu_use import open_gpu

TRACES: Final = json.loads((Path(__file__).parents[3] / "data" / "amdsmi.json").read_text())["gpus"]


class AmdSmiException(Exception):
    pass


class AmdSmiLibraryException(AmdSmiException):
    def get_error_code(self) -> int:
        return int(self.args[0])


class Smi:
    """The module `amdsmi`, with the functions of one trace."""

    AmdSmiException = AmdSmiException
    AmdSmiLibraryException = AmdSmiLibraryException
    AmdSmiMemoryType = IntEnum("AmdSmiMemoryType", ["VRAM", "VIS_VRAM", "GTT"], start=0)
    AmdSmiClkType = IntEnum("AmdSmiClkType", ["SYS", "GFX", "MEM"], start=0)
    AmdSmiTemperatureType = IntEnum("AmdSmiTemperatureType", ["EDGE", "JUNCTION", "VRAM"], start=0)
    AmdSmiTemperatureMetric = IntEnum("AmdSmiTemperatureMetric", ["CURRENT", "MAX"], start=0)
    amdsmi_wrapper = SimpleNamespace(AMDSMI_STATUS_NOT_SUPPORTED=2)

    def __init__(self, gpu: str) -> None:
        self.answers: dict[str, list[Any]] = {name: list(values) for name, values in TRACES[gpu].items()}
        self.answers = {"amdsmi_init": [None], "amdsmi_shut_down": [None]} | self.answers
        self.calls: Counter[str] = Counter()
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        if name not in self.answers:
            raise AttributeError(name)
        return lambda *args: self.answer(name, args)

    def answer(self, name: str, args: tuple[Any, ...]) -> Any:
        self.calls[name] += 1
        self.asked.append((name, *args))
        values = self.answers[name]
        value = values.pop(0) if len(values) > 1 else values[0]
        if isinstance(value, dict) and "error" in value:
            raise AmdSmiLibraryException(value["error"])
        return value


def two_samples(smi: Smi) -> list[dict[str, float]]:
    gpu, rates = AmdGpuUse(smi, "0"), Rates()
    return [rates.of(gpu.read(), now) for now in (100.0, 102.0)]


def test_all_values_of_a_gpu() -> None:
    smi = Smi("mi300x")
    first, second = two_samples(smi)
    assert first == {
        "gpu_utilization": 98,
        "gpu_memory": 190e9,
        "gpu_power": 712,
        "gpu_temperature": 77,
        "gpu_clock": 2100,
        "gpu_ecc_errors": 0,
    }
    assert (second["gpu_utilization"], second["gpu_temperature"], second["gpu_ecc_errors"]) == (11, 61, 3)
    assert second.keys() <= RANK.keys()
    temperature, clock = smi.AmdSmiTemperatureType.JUNCTION, smi.AmdSmiClkType.GFX
    assert ("amdsmi_get_temp_metric", "first", temperature, smi.AmdSmiTemperatureMetric.CURRENT) in smi.asked
    assert ("amdsmi_get_clock_info", "first", clock) in smi.asked


@pytest.mark.parametrize(("gpu", "handle"), [("0", "first"), ("1", "second"), ("GPU-b2", "second")])
def test_a_gpu_is_found_by_hips_number_or_uuid(gpu: str, handle: str) -> None:
    smi = Smi("mi300x")
    AmdGpuUse(smi, gpu).read()
    assert ("amdsmi_get_gpu_activity", handle) in smi.asked


def test_what_a_gpu_lacks_is_left_out_and_called_once() -> None:
    """Of two errors, only `not supported` counts as lacking."""
    smi = Smi("radeon")
    first, second = two_samples(smi)
    assert first == {"gpu_memory": 1e9, "gpu_power": 41, "gpu_clock": 500}
    assert second == first | {"gpu_temperature": 40}
    assert smi.calls["amdsmi_get_gpu_activity"] == smi.calls["amdsmi_get_gpu_total_ecc_count"] == 1


def test_what_the_library_holds_is_freed() -> None:
    smi = Smi("mi300x")
    AmdGpuUse(smi, "0").close()
    assert smi.calls["amdsmi_shut_down"] == 1


@pytest.mark.parametrize("lacks", ["the GPU", "HIP's numbers"])
def test_a_gpu_that_is_not_found_leaves_the_library_closed(lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    smi = Smi("mi300x")
    if lacks != "the GPU":
        del smi.answers["amdsmi_get_gpu_enumeration_info"]
    monkeypatch.setitem(sys.modules, "amdsmi", smi)
    assert open_amd_gpu("7") is None
    assert smi.calls["amdsmi_shut_down"] == 1


def test_without_a_driver_or_the_package_there_is_no_gpu_and_no_word(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for module in (Smi("no driver"), None):
        monkeypatch.setitem(sys.modules, "amdsmi", module)
        assert open_amd_gpu("0") is None
    assert capfd.readouterr() == ("", "")


def test_amd_smi_is_asked_where_nvml_has_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", Smi("mi300x"))
    gpu = open_gpu("1")
    assert isinstance(gpu, AmdGpuUse) and gpu.read().values["gpu_power"] == 712
