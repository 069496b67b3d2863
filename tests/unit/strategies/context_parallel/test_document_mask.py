"""The mask of packed documents shows each query the keys of its document up to itself, and chunks of queries change nothing."""

import pytest
import torch
from harness.attentions import document_slices, document_starts, heads

from shardyard.strategies import packed_rules
from shardyard.strategies.context_parallel import document_mask
from shardyard.strategies.context_parallel.document_mask import WITHIN_DOCUMENTS, mask_of


def test_a_query_meets_its_document_up_to_itself() -> None:
    starts, places = document_starts(24), torch.arange(24)
    outside = mask_of(starts, places, places).outside()
    assert outside.shape == (2, 1, 24, 24)
    for row in (0, 1):
        expected = torch.ones(24, 24, dtype=torch.bool)
        for part in document_slices(row, 24):
            for query in range(part.start, part.stop):
                expected[query, part.start : query + 1] = False
        assert torch.equal(outside[row, 0], expected)


def test_without_the_causal_mask_a_query_meets_its_whole_document() -> None:
    starts, places = document_starts(24), torch.arange(24)
    other = (starts.unsqueeze(2) != starts.unsqueeze(1)).unsqueeze(1)
    assert torch.equal(mask_of(starts, places, places, causal=False).outside(), other)
    given = torch.cat((starts, starts[:, -1:]), dim=1)[:, :-1]  # as attention takes the starts of tokens
    assert torch.equal(mask_of(given, places, places, causal=False).outside(), other)


@pytest.mark.parametrize("causal", [True, False])
def test_some_queries_and_some_keys_have_their_part_of_the_mask(causal: bool) -> None:
    starts, places = document_starts(24), torch.arange(24)
    queries, keys = torch.tensor([20, 3, 7]), torch.tensor([2, 19, 6, 20])
    whole = mask_of(starts, places, places, causal).outside()
    assert torch.equal(mask_of(starts, queries, keys, causal).outside(), whole[:, :, queries][:, :, :, keys])


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_chunks_of_queries_change_nothing(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v, grad = heads(2, 24)
    places = torch.arange(24)
    mask = mask_of(document_starts(24), places, places)
    out, lse = WITHIN_DOCUMENTS.forward(q, k, v, mask)
    gradients = WITHIN_DOCUMENTS.backward(grad, q, k, v, out, lse, mask)
    monkeypatch.setattr(document_mask, "CHUNK", size * 2 * 4 * 24)
    assert next(one.stop - one.start for one in mask.chunks(4)) == size
    again, again_lse = WITHIN_DOCUMENTS.forward(q, k, v, mask)
    torch.testing.assert_close(again, out, rtol=0, atol=1e-15)
    torch.testing.assert_close(again_lse, lse, rtol=0, atol=1e-15)
    for one, other in zip(WITHIN_DOCUMENTS.backward(grad, q, k, v, out, lse, mask), gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-14)


def test_a_block_without_a_key_for_a_query_has_no_weight() -> None:
    q, k, v, grad = heads(4, 24)
    places = torch.arange(24)
    late, early = mask_of(document_starts(24), places[16:], places[:6]), slice(0, 6)
    out, lse = WITHIN_DOCUMENTS.forward(q[:, :, 16:], k[:, :, early], v[:, :, early], late)
    assert out.count_nonzero() == 0 and (lse == -torch.inf).all()
    known = torch.zeros_like(lse)  # of the other blocks
    gradients = WITHIN_DOCUMENTS.backward(
        grad[:, :, 16:], q[:, :, 16:], k[:, :, early], v[:, :, early], out, known, late
    )
    assert all(one.count_nonzero() == 0 for one in gradients)


def test_the_memory_plan_counts_the_same_chunk() -> None:
    assert document_mask.CHUNK is packed_rules.CHUNK
