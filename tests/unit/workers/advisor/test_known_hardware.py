"""Hardware by name: what is given wins over what is measured, and that over what is known."""

import pytest

from shardyard.strategies.advisor.hardware import Link
from shardyard.workers.advisor.known_hardware import (
    REACHED,
    Given,
    Measured,
    as_measured,
    link_of,
    of_cpus,
    of_gpus,
)
from shardyard.workers.collectives.report import COLLECTIVES, Report, Speed
from shardyard.workers.gpu_models import GPU_MODELS, gpu_named

H100 = gpu_named("H100")
assert H100 is not None


def test_a_gpu_has_half_its_peak_and_four_fifths_of_its_links() -> None:
    found = of_gpus(H100, "bf16", 16, Given())
    assert found.flops == pytest.approx(989.4e12 / 2)
    assert (found.intra.bandwidth, found.inter.bandwidth) == (REACHED * 450e9, REACHED * 50e9)
    assert (found.ranks_per_node, found.memory, found.cores) == (8, 81559 * 2**20, 1.0)
    assert of_gpus(H100, "fp32", 16, Given()).flops == pytest.approx(66.9e12 / 2)
    assert of_gpus(H100, "bf16", 4, Given()).ranks_per_node == 4


def test_what_is_given_replaces_what_is_known() -> None:
    found = of_gpus(H100, "bf16", 16, Given(peak_tflops=100, mfu=0.4, intra_gbps=800, inter_gbps=80, per_node=4))
    assert found.flops == pytest.approx(40e12)
    assert (found.intra.bandwidth, found.inter.bandwidth) == (pytest.approx(80e9), pytest.approx(8e9))
    assert found.ranks_per_node == 4


def test_ranks_on_cpus_share_cores_and_hide_nothing() -> None:
    found = of_cpus(2, 8 * 2**30, 4, Given())
    assert (found.device, found.cores, found.ranks_per_node, found.hidden) == ("cpu", 0.5, 4, 0.0)
    assert of_cpus(8, None, 4, Given()).cores == 1.0
    given = of_cpus(2, None, 4, Given(peak_tflops=0.1, mfu=0.9, intra_gbps=8, inter_gbps=1, per_node=2))
    assert (given.flops, given.intra.bandwidth, given.inter.bandwidth) == (
        pytest.approx(9e10),
        pytest.approx(1e9),
        pytest.approx(1.25e8),
    )
    assert (given.ranks_per_node, given.cores) == (2, 1.0)


def test_measurements_replace_what_is_known_but_not_what_is_given() -> None:
    measured = Measured(flops=1e12, block_s=1e-3, memory_bandwidth=1e10, intra=Link(1e9, 1e-4))
    found = as_measured(of_gpus(H100, "bf16", 2, Given()), measured, Given())
    assert (found.flops, found.block_s, found.memory_bandwidth, found.intra) == (1e12, 1e-3, 1e10, measured.intra)
    given = Given(mfu=0.4, intra_gbps=800)
    plain = of_gpus(H100, "bf16", 2, given)
    kept = as_measured(plain, measured, given)
    assert (kept.flops, kept.intra, kept.block_s) == (plain.flops, plain.intra, 1e-3)
    alone = as_measured(plain, Measured(1e12, 0.0, 1e10), Given())
    assert alone.intra == plain.intra


def test_a_link_is_what_all_reduces_say() -> None:
    """4 ranks, 1 GB/s and 100 µs per hop: 3/2 of the size and 2 hops."""
    speeds = tuple(
        Speed(axis, kind, 4, size, (1.5 * size / 1e9 + 2e-4,))
        for axis in ("world", "tensor")
        for kind in COLLECTIVES
        for size in (4096, 1 << 30)
    )
    found = link_of(Report("gloo", 4, ("a",) * 4, speeds, ()).to_json())
    assert found.bandwidth == pytest.approx(1e9, rel=1e-3)
    assert found.latency == pytest.approx(1e-4, rel=1e-3)


def test_every_model_has_its_bandwidths() -> None:
    for model in GPU_MODELS:
        assert 16 <= model.link_gbytes_s <= model.memory_gbytes_s
