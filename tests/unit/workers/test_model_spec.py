from typing import Any

import pytest
from pydantic import ValidationError

from shardyard.strategies.layout import Refusal
from shardyard.workers.model_spec import ModelSpec


def test_a_vocabulary_smaller_than_the_tokenizers_is_refused() -> None:
    with pytest.raises(Refusal, match="less than the tokenizer's 256 tokens"):
        ModelSpec(vocab=255).check_vocab(256)
    ModelSpec(vocab=256).check_vocab(256)


def test_the_numbers_of_a_mixture_belong_to_its_family() -> None:
    with pytest.raises(ValidationError, match="experts: only of family moe"):
        ModelSpec(family="gpt2", experts=4)
    with pytest.raises(ValidationError, match="shared_experts, balance: only of family moe"):
        ModelSpec(family="llama", shared_experts=1, balance="bias")


def test_how_loads_are_balanced_is_said_once() -> None:
    with pytest.raises(ValidationError, match="router_softmax belongs to balance loss"):
        ModelSpec(family="moe", balance="bias", router_softmax="all")
    with pytest.raises(ValidationError, match="bias_update_speed belongs to balance bias"):
        ModelSpec(family="moe", bias_update_speed=0.01)
    arch = ModelSpec(family="moe", preset="olmoe-1B-7B", balance="bias", shared_experts=1).architecture(256, 32)
    assert arch is not None
    assert (arch.balance, arch.shared_experts, arch.bias_update_speed, arch.z_loss) == ("bias", 1, 0.001, 0.0)


def test_a_capacity_beyond_every_experts_tokens_is_refused() -> None:
    """4096 experts are the most, and one of them can take 4096 times an even share."""
    assert ModelSpec(family="moe", capacity_factor=4096).capacity_factor == 4096
    with pytest.raises(ValidationError, match="less than or equal to 4096") as refused:
        ModelSpec(family="moe", capacity_factor=1.7e308)
    assert refused.value.errors()[0]["loc"] == ("capacity_factor",)


@pytest.mark.parametrize(
    ("given", "unread", "remedy"),
    [
        ({"import": "net:make", "layers": 2, "rope_theta": 5e5}, "layers, rope_theta", "model.args"),
        ({"import": "net:make", "tied": False}, "tied", "model.args"),
        ({"family": "gpt2", "rope_theta": 5e5}, "rope_theta", "family to llama"),
    ],
)
def test_a_number_that_the_model_does_not_read_is_refused(given: dict[str, Any], unread: str, remedy: str) -> None:
    with pytest.raises(ValidationError) as refused:
        ModelSpec.model_validate(given)
    cause = refused.value.errors()[0]["ctx"]["error"]
    assert isinstance(cause, Refusal) and cause.field == unread.partition(",")[0]
    assert unread in str(cause) and remedy in cause.remedy
    known = ModelSpec.model_validate({name: value for name, value in given.items() if name not in unread})
    stored = known.model_dump(mode="json", by_alias=True)
    assert ModelSpec.model_validate(stored) == known
    assert ModelSpec.model_validate(stored | given), "a job of an older version is still read"
