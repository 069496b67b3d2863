"""Where documents start follows from a row's tokens, and no target belongs to another document than its token."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from shardyard.strategies.documents import IGNORED, Packed, count, predicts, starts_of, taken, within

END = 9


@given(st.lists(st.lists(st.integers(7, END), min_size=6, max_size=6), min_size=1, max_size=3))
def test_a_document_starts_after_the_last_end_before_it(rows: list[list[int]]) -> None:
    found = starts_of(torch.tensor(rows), END).tolist()
    for row, starts in zip(rows, found, strict=True):
        start = 0
        for place, token in enumerate(row):
            assert starts[place] == start
            start = place + 1 if token == END else start
        assert starts[len(row)] == start


@given(st.lists(st.integers(7, END), min_size=7, max_size=7))
def test_a_token_has_a_target_unless_it_ends_its_document(row: list[int]) -> None:
    tokens = torch.tensor([row])
    targets = within(tokens[:, :-1], tokens[:, 1:], END)
    starts, places = starts_of(tokens[:, :-1], END), torch.tensor([5, 0, 3])
    assert torch.equal(predicts(starts, places), targets[:, places] != IGNORED)


def test_an_end_predicts_nothing_and_all_other_tokens_their_next() -> None:
    row = torch.tensor([[5, END, 6, 7, END, END, 8]])
    targets = within(row[:, :-1], row[:, 1:], END)
    assert targets.tolist() == [[END, IGNORED, 7, END, IGNORED, IGNORED]]
    assert count(targets) == 3


def test_micro_batches_have_the_starts_of_their_rows() -> None:
    packed = Packed(torch.arange(8).view(4, 2), torch.arange(16).view(4, 4))
    first, second = packed.chunk(2)
    assert first.tokens.tolist() == [[0, 1], [2, 3]] and second.starts[0].tolist() == [8, 9, 10, 11]
    moved = packed.to(torch.device("meta"))
    assert moved.tokens.is_meta and moved.starts.is_meta


def test_a_model_gets_starts_only_if_documents_are_packed() -> None:
    tokens = torch.zeros(1, 2, dtype=torch.int64)
    assert taken(tokens) == (tokens, {})
    assert taken(Packed(tokens, tokens + 1))[1]["starts"].tolist() == [[1, 1]]
