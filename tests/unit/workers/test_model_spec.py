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
