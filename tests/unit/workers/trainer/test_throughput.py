import pytest

from shardyard.workers.trainer.throughput import Throughput, peak_flops


def test_mfu_is_the_share_of_all_devices_peaks() -> None:
    found = Throughput(devices=4, flops=6_000, peak=1e6).of(tokens=1000, seconds=2.0)
    assert found == {"tokens_per_s": 500.0, "tokens_per_s_device": 125.0, "mfu": pytest.approx(0.75)}


@pytest.mark.parametrize(("flops", "peak"), [(None, 1e6), (6_000, None)])
def test_what_is_not_known_is_null(flops: int | None, peak: float | None) -> None:
    assert Throughput(1, flops, peak).of(10, 1.0)["mfu"] is None


@pytest.mark.parametrize(
    ("name", "precision", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", 989.4e12),
        ("NVIDIA H100 80GB HBM3", "fp32", 66.9e12),
        ("NVIDIA H100 PCIe", "fp16", 756e12),
        ("NVIDIA A100-SXM4-80GB", "bf16", 312e12),
        ("NVIDIA L40S", "bf16", 362.05e12),
        ("NVIDIA L4", "bf16", 121e12),
        ("NVIDIA A10G", "bf16", 70e12),
        ("AMD Instinct MI300X", "bf16", 1307.4e12),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "bf16", None),
        ("NVIDIA H100 80GB HBM3", "fp64", None),
        ("cpu", "fp32", None),
    ],
)
def test_peaks_by_name(name: str, precision: str, peak: float | None) -> None:
    assert peak_flops(name, precision) == pytest.approx(peak)


@pytest.mark.parametrize(
    ("name", "sparse", "single"),
    [
        ("NVIDIA H100 NVL", 1671, 60),  # "NVIDIA H100 Tensor Core GPU", H100 NVL
        ("NVIDIA H200", 1979, 67),  # "NVIDIA H200 Tensor Core GPU", H200 SXM
        ("NVIDIA H200 NVL", 1671, 60),  # the same, H200 NVL
        ("NVIDIA B200", 4500, 75),  # "NVIDIA Blackwell", each GPU of an HGX B200
        ("NVIDIA GB200", 5000, 80),  # the same, each GPU of a GB200 NVL72
    ],
)
def test_peaks_are_those_of_the_data_sheets(name: str, sparse: int, single: int) -> None:
    """TFLOP/s as NVIDIA's data sheets round them: of bf16 tensor cores with sparsity, which is twice the dense peak, and of fp32."""
    assert peak_flops(name, "bf16") == pytest.approx(sparse / 2 * 1e12, abs=0.25e12)
    assert peak_flops(name, "fp32") == pytest.approx(single * 1e12, abs=0.5e12)
