"""A position counts samples: batches of any size go on where the last one ended, and no position is taken into another order."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardyard.strategies.layout import Refusal
from shardyard.workers.data.position import Position, SampleOrder, known_order, refuse_other_order
from shardyard.workers.spec import TrainSpec

ORDER = SampleOrder("text", "bytes", 32, 0.05, 7)

#: Steps of a job, its global batch, and whether it restarts the data.
JOBS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9), st.booleans()), min_size=1, max_size=5)


@given(JOBS)
def test_jobs_that_resume_each_other_read_every_sample_once(jobs: list[tuple[int, int, bool]]) -> None:
    read: list[int] = []
    step, total, saved = 0, 0, None
    for steps, batch, restart in jobs:
        position = Position(ORDER, batch)
        if saved is not None:
            position.restore(step, saved, restart)
            read = [] if restart else read
        for step in range(step + 1, step + steps + 1):  # noqa: B020  (the next job goes on after the last step)
            first = position.first_sample(step)
            read += range(first, first + batch)
            total += batch * 32
            assert position.tokens(step) == total
        saved = position.state(step)
        assert saved["samples"] == len(read)
    assert read == list(range(len(read)))


OTHER: dict[str, Any] = {
    "corpus": "x",
    "tokenizer": "x",
    "seq_len": 64,
    "validation": 0.1,
    "seed": 8,
    "source": "a:b",
    "content": "x",
}


@pytest.mark.parametrize("part", OTHER)
def test_another_order_is_refused_unless_the_data_restart(part: str) -> None:
    saved = Position(ORDER, 4).state(3)
    here = Position(replace(ORDER, **{part: OTHER[part]}), 4)
    with pytest.raises(Refusal) as refused:
        here.restore(3, saved)
    field = {"corpus": "data", "seed": "seed", "content": "data.options"}.get(part, f"data.{part}")
    assert refused.value.field == field and "resume_data: restart" in refused.value.remedy
    here.restore(3, saved, restart=True)
    assert (here.first_sample(4), here.tokens(3)) == (0, 3 * 4 * 32)


def test_a_refusal_says_both_numbers_and_how_to_get_back() -> None:
    with pytest.raises(Refusal) as refused:
        refuse_other_order({"seq_len": 32}, {"seq_len": 64})
    assert "trained with 32, not 64" in refused.value.message and "Set data.seq_len to 32; or" in refused.value.remedy


def test_another_tokenizer_is_named_before_the_text_that_it_made() -> None:
    saved, here = ({"corpus": name, "tokenizer": name} for name in "ab")
    with pytest.raises(Refusal, match="another tokenizer"):
        refuse_other_order(saved, here)


@pytest.mark.parametrize("tokenizer", ["bytes", "tokenizer.json"])
def test_a_spec_says_what_needs_no_file(tokenizer: str) -> None:
    spec = TrainSpec.model_validate({"steps": 1, "global_batch": 4, "seed": 3, "data": {"tokenizer": tokenizer}})
    hashed = {"tokenizer": "bytes"} if tokenizer == "bytes" else {}
    assert known_order(spec) == {"source": "text", "seq_len": 256, "validation": 0.05, "seed": 3, **hashed}


def test_a_spec_says_the_source_of_its_samples() -> None:
    given = {"steps": 1, "global_batch": 4, "seed": 3, "model": {"import": "a:b"}, "data": {"source": "a:c"}}
    known = known_order(TrainSpec.model_validate(given))
    assert known == {"source": "a:c", "seed": 3}
    with pytest.raises(Refusal, match="trained with text, not a:c") as refused:
        refuse_other_order(Position(ORDER, 4).state(3), known)
    assert refused.value.field == "data.source"


def test_only_what_is_resumed_restarts_its_data() -> None:
    with pytest.raises(ValueError, match="resume_data: restart needs resume_from"):
        TrainSpec.model_validate({"steps": 1, "global_batch": 4, "resume_data": "restart"})


def test_packed_bytes_are_other_tokens_than_joined_ones() -> None:
    given = {"steps": 1, "global_batch": 4, "seed": 7, "data": {"seq_len": 32, "documents": "packed"}}
    joined, packed = Position(ORDER, 4).state(3), known_order(TrainSpec.model_validate(given))
    with pytest.raises(Refusal, match="trained with joined, not packed") as refused:
        refuse_other_order(joined, packed)
    assert (refused.value.field, "Set data.documents to joined; or" in refused.value.remedy) == ("data.documents", True)
    with pytest.raises(Refusal, match="trained with packed, not joined"):
        refuse_other_order(packed, joined)
