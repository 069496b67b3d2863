import pytest

from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.supervisor.policies.absence import announced, may_be_absent
from shardyard.workers.supervisor.policies.failures import Failure

#: Four workers beside two servers.
SERVED = GangSpec("shardyard-a-1", {}, 6, own_clocks=4)


@pytest.mark.parametrize(
    ("cause", "rank", "tolerated"),
    [
        ("rank_lost", 1, True),
        ("hang", 3, True),
        ("rank_lost", 0, False),  # it reports on the job
        ("rank_lost", 4, False),  # a server
        ("hang", None, False),
        ("exception", 2, False),
        ("node_lost", None, False),
    ],
)
def test_only_a_worker_that_is_lost_or_hangs_may_be_absent(cause: str, rank: int | None, tolerated: bool) -> None:
    assert may_be_absent(Failure(cause, rank, "gone"), SERVED) == tolerated


@pytest.mark.parametrize("workers", [0, 1])
def test_elsewhere_none_may_be(workers: int) -> None:
    """0: no clocks of their own, or no snapshots from which a worker could return; 1: only worker 0."""
    spec = GangSpec("shardyard-a-1", {}, 6, own_clocks=workers)
    assert not any(may_be_absent(Failure("rank_lost", rank, "gone"), spec) for rank in range(6))


def test_the_incident_says_who_trains_on() -> None:
    lost = Failure("rank_lost", 1, "the trainer was killed by SIGKILL", "node-a")
    assert announced(lost, 3).message == (
        "the trainer was killed by SIGKILL; 3 workers train on, and the rank returns at their next meeting"
    )
    assert "; 1 worker trains on, " in announced(lost, 1).message and announced(lost, 1).node == "node-a"
