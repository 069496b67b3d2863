from shardyard.workers.failure import Failure


def test_a_failure_says_rank_and_traceback() -> None:
    text = Failure("exception", 2, "ValueError: no", "node", "Traceback …").text()
    assert text == "rank 2: ValueError: no\n\nTraceback …"
