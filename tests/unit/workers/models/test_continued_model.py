"""Tensors of equal shapes can belong to another model, which a run must not become in silence."""

import pytest

from shardyard.strategies.layout import Refusal
from shardyard.workers.models.continued_model import other_numbers, refuse_other_model
from shardyard.workers.models.presets import PRESETS, Architecture

HERE = Architecture.model_validate(PRESETS["llama"]["nano"])


@pytest.mark.parametrize("name", ["heads", "kv_heads"])
def test_other_heads_of_equal_shapes_are_refused(name: str) -> None:
    other = HERE.model_copy(update={"heads": 2, "kv_heads": 1, "head_dim": 64} if name == "heads" else {"kv_heads": 4})
    with pytest.raises(Refusal) as refused:
        refuse_other_model(other.model_dump(), HERE)
    assert refused.value.field == f"model.{name}" and str(getattr(other, name)) in refused.value.remedy


@pytest.mark.parametrize("here", [1024, 2048])
def test_another_number_of_learned_positions_is_refused(here: int) -> None:
    """The table's length is that of the longest sequence. Families with rotary positions have no table."""
    gpt2 = Architecture.model_validate(PRESETS["gpt2"]["nano"])
    saved = gpt2.model_copy(update={"max_seq_len": 3072 - here}).model_dump()
    with pytest.raises(Refusal, match=f"has {3072 - here} learned positions, not {here}") as refused:
        refuse_other_model(saved, gpt2.model_copy(update={"max_seq_len": here}))
    assert refused.value.field == "data.seq_len" and f"Set data.seq_len to {3072 - here}, " in refused.value.remedy
    refuse_other_model(HERE.model_copy(update={"max_seq_len": 4096}).model_dump(), HERE)


def test_what_is_not_known_is_not_refused() -> None:
    """A checkpoint of an older version, and modules of the user's own, name no architecture, or not all of its numbers."""
    for saved, here in ((None, HERE), (HERE.model_dump(), None), ({"layers": 4}, HERE), (HERE.model_dump(), HERE)):
        refuse_other_model(saved, here)
        assert other_numbers(saved, here) is None


def test_other_numbers_of_no_weight_are_said() -> None:
    saved = HERE.model_dump() | {"rope_theta": 500_000.0, "max_seq_len": 4096, "another": 1}
    said = "The model of the checkpoint had other numbers than this run's: rope_theta 500000.0, now 10000.0."
    assert other_numbers(saved, HERE) == said
