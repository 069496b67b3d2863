import pytest

from shardyard.workers.gang import Failure, Order, Supervisor, placement, rank_name


@pytest.mark.parametrize(
    ("tensor", "device", "bundles"),
    [
        (1, "cpu", [{"CPU": 0.25}] * 4),
        (2, "cpu", [{"CPU": 0.5}] * 2),
        (4, "cuda", [{"GPU": 4.0}]),
    ],
)
def test_a_tensor_group_is_one_bundle(tensor: int, device: str, bundles: list[dict[str, float]]) -> None:
    assert placement(Order("shardyard-a-1", {}, 4, tensor, device)) == bundles


def test_ranks_are_named_after_their_gang() -> None:
    assert rank_name("shardyard-a-1", 3) == "shardyard-a-1-rank-3"


def test_the_root_cause_is_no_echo_of_another_failure() -> None:
    supervisor = Supervisor(Order("shardyard-a-1", {}, 2))
    echo = Failure("exception", 0, "RuntimeError: [gloo] Connection closed by peer [127.0.0.1]:1")
    lost = Failure("rank_lost", 1, "the trainer was killed by SIGKILL")
    supervisor.failures = [echo]
    assert supervisor._root_cause() == echo
    supervisor.failures = [echo, lost]
    assert supervisor._root_cause() == lost
    wrapped = Failure("exception", 0, "RuntimeError: failed to run forward", None, f"{echo.message}\n\nThe above …")
    supervisor.failures = [wrapped, lost]
    assert wrapped.mendable and supervisor._root_cause() == lost
    supervisor.failures = [echo, Failure("exception", 1, "ValueError: no"), lost]
    assert supervisor._root_cause().message == "ValueError: no"


def test_a_failure_says_rank_and_traceback() -> None:
    text = Failure("exception", 2, "ValueError: no", "node", "Traceback …").text()
    assert text == "rank 2: ValueError: no\n\nTraceback …"
