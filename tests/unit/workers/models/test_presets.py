"""Presets have the sizes that were published, and numbers that do not fit are refused."""

import pytest
from harness.decoders import tiny

from shardyard.workers.models.presets import PRESETS, Architecture


@pytest.mark.parametrize(
    ("family", "preset", "vocab", "billions"),
    [
        ("moe", "mixtral-8x7B", 32000, 46.7),
        ("moe", "olmoe-1B-7B", 50304, 6.92),
        ("llama", "qwen3-0.6B", 151936, 0.596),
        ("llama", "qwen3-8B", 151936, 8.19),
    ],
)
def test_published_sizes(family: str, preset: str, vocab: int, billions: float) -> None:
    arch = Architecture.model_validate({**PRESETS[family][preset], "vocab": vocab})
    assert arch.parameters / 1e9 == pytest.approx(billions, rel=2e-3)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"family": "moe", "experts": None}, "needs experts"),
        ({"family": "llama", "experts": 4}, "belong to family moe"),
        ({"family": "moe", "experts": 2, "top_k": 3}, "more than the 2 experts"),
        ({"family": "llama", "shared_experts": 1}, "belong to family moe"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(numbers: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny(**{"kv_heads": 2, **numbers})


def test_biases_bring_the_coefficients_of_deepseek() -> None:
    numbers = {"family": "moe", "kv_heads": 2, "experts": 4}
    assert [(arch.balance_loss, arch.z_loss) for arch in (tiny(**numbers), tiny(**numbers, balance="bias"))] == [
        (0.01, 0.001),
        (0.0001, 0.0),
    ]
    assert tiny(**numbers, balance="bias", z_loss=0.5).z_loss == 0.5
