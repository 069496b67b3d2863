import pytest
import torch
from harness.decoders import decoder, tiny

from shardyard.strategies.param_shard import narrow
from shardyard.workers.models.init import initial_value, initial_values
from shardyard.workers.models.normal_values import ParamSlice


def values(name: str, seed: int = 0, size: tuple[int, ...] = (200, 100), layers: int = 2) -> torch.Tensor:
    return initial_value(name, torch.Size(size), seed, tiny("llama", layers=layers))


def test_a_weight_is_a_function_of_seed_and_name_alone() -> None:
    first = values("blocks.1.mlp.up.weight")
    torch.manual_seed(99)
    values("embed.weight")
    assert torch.equal(values("blocks.1.mlp.up.weight"), first)
    assert not torch.equal(values("blocks.0.mlp.up.weight"), first)
    assert not torch.equal(values("blocks.1.mlp.up.weight", seed=1), first)


def test_neither_the_number_of_layers_nor_the_family_moves_a_weight() -> None:
    few, many = decoder(tiny("llama", layers=1)), decoder(tiny("llama", layers=3))
    assert torch.equal(few.blocks["0"].attention.q.weight, many.blocks["0"].attention.q.weight)
    assert torch.equal(few.embed.weight, decoder(tiny("gpt2")).embed.weight)


def test_the_values_of_a_release_stay() -> None:
    """A resumed or compared run must start from the same weights after an upgrade: these numbers never change, on any device."""
    assert values("embed.weight", seed=7, size=(2, 2)).flatten().tolist() == PINNED


PINNED = [-0.04407329484820366, 0.016060855239629745, -0.008389877155423164, 0.0065045831725001335]


@pytest.mark.parametrize("name", ["embed.weight", "norm.weight", "blocks.0.mlp.up.bias"])
def test_a_slice_has_the_values_of_the_whole(name: str) -> None:
    shape, arch = ((23, 10) if name == "embed.weight" else (23,)), tiny("gpt2")
    offset, size = (5, 3)[: len(shape)], (11, 6)[: len(shape)]
    found = initial_values(name, ParamSlice(shape, offset, size), 3, arch, torch.device("cpu"))
    assert found.dtype == torch.float32
    assert torch.equal(found, narrow(initial_value(name, shape, 3, arch), offset, size))


@pytest.mark.parametrize("name", ["embed.weight", "positions.weight", "head.weight", "blocks.0.attention.q.weight"])
def test_matrices_have_a_standard_deviation_of_002(name: str) -> None:
    weights = values(name)
    assert weights.dtype == torch.float32
    assert weights.std().item() == pytest.approx(0.02, rel=0.03)
    assert weights.mean().item() == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("name", ["blocks.0.attention.o.weight", "blocks.0.mlp.down.weight"])
def test_projections_into_the_residual_stream_shrink_with_depth(name: str) -> None:
    assert values(name, layers=8).std().item() == pytest.approx(0.02 / 4, rel=0.03)


def test_norms_are_ones_and_biases_zeros() -> None:
    assert torch.equal(values("blocks.0.mlp_norm.weight", size=(5,)), torch.ones(5))
    assert torch.equal(values("norm.weight", size=(5,)), torch.ones(5))
    assert torch.equal(values("norm.bias", size=(5,)), torch.zeros(5))
    assert torch.equal(values("blocks.0.attention.q.bias", size=(5,)), torch.zeros(5))
