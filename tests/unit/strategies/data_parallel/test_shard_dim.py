"""What ZeRO-3 shards by its second dimension, and that the formulas count the shards so."""

from typing import Any

import pytest
import torch
from torch import nn

from shardyard.strategies.cost.estimate import Setting
from shardyard.strategies.data_parallel.shard_dim import shard_dim
from shardyard.workers.cost_inputs import setting_of
from shardyard.workers.models.registry import make
from shardyard.workers.spec import TrainSpec


@pytest.mark.parametrize(
    ("shape", "parts", "dim"),
    [
        ((8, 4), 4, 0),
        ((3, 8), 4, 1),
        ((3, 9), 4, 0),  # 4 ranks do not divide 9 columns
        ((2, 8, 3), 4, 1),
        ((3,), 4, 0),
        ((), 4, 0),
    ],
)
def test_it_is_the_second_if_the_first_is_too_small_and_ranks_divide_it(
    shape: tuple[int, ...], parts: int, dim: int
) -> None:
    assert shard_dim(shape, parts) == dim


MODELS: list[dict[str, Any]] = [
    {"dim": 64, "heads": 8, "kv_heads": 1, "hidden": 40},  # keys and values of 8 rows
    {"family": "gpt2", "dim": 48, "heads": 6, "kv_heads": 1, "hidden": 20},
    {"preset": "qwen3-nano", "dim": 24},
]


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("ranks", [2, 4, 12, 16, 64, 100])
def test_the_formulas_count_the_shards_of_every_parameter(model: dict[str, Any], ranks: int) -> None:
    layout = {"data": ranks, "zero": 3}
    spec = TrainSpec.model_validate({"steps": 1, "global_batch": ranks, "model": model, "layout": layout})
    found, arch = setting_of(spec, 256, "cpu"), spec.architecture(256)
    assert isinstance(found, Setting) and arch is not None
    with torch.device("meta"):
        module = make(arch)
    assert found.decoder.chunks_held(found.layout, ranks) == sum(_own(value, ranks) for value in module.parameters())


def _own(value: nn.Parameter, ranks: int) -> int:
    """Numbers of the first rank's shard."""
    return value.detach().chunk(ranks, shard_dim(value.shape, ranks))[0].numel()
