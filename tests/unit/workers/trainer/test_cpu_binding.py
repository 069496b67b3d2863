"""sysfs as written trees, and the binding itself on the real kernel."""

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from shardyard.workers.trainer import cpu_binding
from shardyard.workers.trainer.cpu_binding import CpuShare, bind, bind_beside, parse_cpus, share_of, usable_gpus

GPU = {"vendor": "0x10de", "class": "0x030200"}


def machine(sysfs: Path, gpus: dict[str, int], cpus: dict[int, str], threads: int = 2, cores: int = 8) -> None:
    """GPU → NUMA node, and NUMA node → its CPUs. CPU n and n + `cores` are threads of one core."""
    for address, node in gpus.items():
        device(sysfs, address, node, cpus.get(node, "0-15"), GPU)
    for cpu in range(cores * threads):
        where = sysfs / f"devices/system/cpu/cpu{cpu}/topology"
        where.mkdir(parents=True)
        siblings = ",".join(str(cpu % cores + cores * thread) for thread in range(threads))
        (where / "thread_siblings_list").write_text(siblings + "\n")


def device(sysfs: Path, address: str, node: int, cpus: str, kind: dict[str, str]) -> None:
    where = sysfs / "bus/pci/devices" / address
    where.mkdir(parents=True)
    for name, text in {"numa_node": str(node), "local_cpulist": cpus, **kind}.items():
        (where / name).write_text(text + "\n")


FOUR = {"0000:01:00.0": 0, "0000:41:00.0": 0, "0000:81:00.0": 1, "0000:c1:00.0": 1}
TWO_NODES = {0: "0-3,8-11", 1: "4-7,12-15"}


def test_the_gpus_of_a_numa_node_share_its_cores_evenly(tmp_path: Path) -> None:
    machine(tmp_path, FOUR, TWO_NODES)
    device(tmp_path, "0000:02:00.0", 0, "0-3,8-11", {"vendor": "0x8086", "class": "0x020000"})  # a network card
    found = {gpu: share_of(gpu, range(16), tmp_path) for gpu in FOUR}
    assert found == {
        "0000:01:00.0": CpuShare(0, frozenset({0, 1, 8, 9}), 2),
        "0000:41:00.0": CpuShare(0, frozenset({2, 3, 10, 11}), 2),
        "0000:81:00.0": CpuShare(1, frozenset({4, 5, 12, 13}), 2),
        "0000:c1:00.0": CpuShare(1, frozenset({6, 7, 14, 15}), 2),
    }


def test_cores_that_the_container_may_not_use_are_in_no_share(tmp_path: Path) -> None:
    machine(tmp_path, FOUR, TWO_NODES)
    assert share_of("0000:41:00.0", {0, 1, 2, 8}, tmp_path) == CpuShare(0, frozenset({1, 2}), 2)
    assert share_of("0000:01:00.0", {0, 1, 2, 8}, tmp_path) == CpuShare(0, frozenset({0, 8}), 1)
    assert share_of("0000:01:00.0", {4, 5}, tmp_path) is None, "none of its own node"
    assert share_of("0000:01:00.0", {0, 8}, tmp_path) is None, "fewer cores than GPUs"


def test_a_container_with_cores_of_its_own_divides_them_among_its_own_gpus(tmp_path: Path) -> None:
    """sysfs has the GPUs of all containers of the machine."""
    machine(tmp_path, FOUR, TWO_NODES)
    own, pair = {1, 2, 3, 9, 10, 11}, {"0000:01:00.0", "0000:41:00.0"}
    alone = share_of("0000:41:00.0", own, tmp_path, usable={"0000:41:00.0", "0000:81:00.0"})
    assert alone == CpuShare(0, frozenset(own), 3)
    assert share_of("0000:41:00.0", own, tmp_path, usable=pair) == CpuShare(0, frozenset({2, 3, 10, 11}), 2)
    shared = share_of("0000:41:00.0", range(16), tmp_path, usable={"0000:41:00.0"})
    assert shared == CpuShare(0, frozenset({2, 3, 10, 11}), 2), "other containers may use these cores, too"
    assert share_of("0000:41:00.0", own, tmp_path, usable=set()) == CpuShare(0, frozenset({2, 3, 10, 11}), 2)


def nvml(addresses: list[tuple[int, int, int]], error: int | None = None) -> SimpleNamespace:
    """The module `pynvml` on a machine with these GPUs, or whose NVML does not start."""
    import pynvml

    def start() -> None:
        if error is not None:
            raise pynvml.NVMLError(error)

    return SimpleNamespace(
        NVMLError=pynvml.NVMLError,
        nvmlInit=start,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(addresses),
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetPciInfo=lambda number: SimpleNamespace(
            **dict(zip(("domain", "bus", "device"), addresses[number], strict=True))
        ),
    )


def test_the_containers_gpus_are_those_of_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml([(0, 0x41, 0), (1, 0xC1, 2)]))
    assert usable_gpus() == {"0000:41:00.0", "0001:c1:02.0"}
    monkeypatch.setitem(sys.modules, "pynvml", nvml([], error=9))  # no driver
    assert usable_gpus() == set()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert usable_gpus() == set()


def test_where_sysfs_does_not_say_nothing_is_bound(tmp_path: Path) -> None:
    machine(tmp_path, {"0000:01:00.0": -1}, {})
    assert share_of("0000:01:00.0", range(16), tmp_path) is None
    assert share_of("0000:99:00.0", range(16), tmp_path) is None
    assert share_of("", range(16), tmp_path) is None


def test_cpus_as_the_kernel_lists_them() -> None:
    assert parse_cpus("0-3,8,10-11") == {0, 1, 2, 3, 8, 10, 11}
    assert parse_cpus("") == set()


@pytest.fixture
def restored() -> Iterator[None]:
    allowed, threads = os.sched_getaffinity(0), torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    bind(CpuShare(0, frozenset(allowed), threads))


@pytest.mark.usefixtures("restored")
def test_every_thread_of_the_process_is_bound() -> None:
    cpu = min(os.sched_getaffinity(0))
    ends = threading.Event()
    other = threading.Thread(target=ends.wait)
    other.start()
    try:
        bind(CpuShare(0, frozenset({cpu}), 1))
        assert os.sched_getaffinity(other.native_id or 0) == os.sched_getaffinity(0) == {cpu}
        assert torch.get_num_threads() == 1
    finally:
        ends.set()
        other.join()


@pytest.mark.usefixtures("restored")
def test_a_gpu_is_found_by_the_address_that_torch_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cpu = min(os.sched_getaffinity(0))
    machine(tmp_path, {"0001:c1:00.0": 1}, {1: str(cpu)})
    monkeypatch.setattr(cpu_binding.share_of, "__defaults__", (tmp_path, ()))
    reported = SimpleNamespace(pci_domain_id=1, pci_bus_id=0xC1, pci_device_id=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: reported)
    assert bind_beside(torch.device("cuda", 0)) == CpuShare(1, frozenset({cpu}), 1)
    assert capsys.readouterr().out == "bound to 1 cores of NUMA node 1\n"
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace())
    assert bind_beside(torch.device("cuda", 0)) is None, "an older torch does not report it"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.usefixtures("restored")
def test_torch_reports_an_address_that_sysfs_has() -> None:
    address = cpu_binding._pci_address(torch.device("cuda", 0))
    assert address in usable_gpus()
    assert (Path("/sys/bus/pci/devices") / address / "numa_node").exists()
