from shardyard.workers.messages.rank_set import format_ranks


def test_ranks_as_text() -> None:
    assert format_ranks([3]) == "rank 3"
    assert format_ranks([2, 0]) == "ranks 0, 2"
    assert format_ranks(range(4)) == "ranks 0–3"
    assert format_ranks(range(0, 40, 2)).endswith("14 and 12 more")
