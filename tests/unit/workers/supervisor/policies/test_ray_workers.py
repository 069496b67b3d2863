"""Which worker of Ray Train is named as the cause."""

import pytest

from shardyard.workers.messages.rank_event import RayWorkerFailure, RayWorkersFailedEvent
from shardyard.workers.supervisor.policies.ray_workers import CAUSE, worker_failure

NODES = ["node-a", "node-b"]
LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1"


def event(*failures: tuple[int, int | None, str]) -> RayWorkersFailedEvent:
    found = tuple(RayWorkerFailure(worker=worker, rank=rank, message=message) for worker, rank, message in failures)
    return RayWorkersFailedEvent(failures=found, message="Ray Train could not start its workers")


@pytest.mark.parametrize(
    ("failures", "rank", "node", "message"),
    [
        ([(3, 1, "ValueError: x")], 1, "node-b", "worker 3 of Ray Train: ValueError: x"),
        (
            [(0, 0, LOST), (1, 1, "its process has died"), (2, 1, LOST)],
            1,
            "node-b",
            "worker 1 of Ray Train: its process has died; workers 0, 2 failed, too",
        ),
        ([(0, 0, LOST), (1, 1, LOST)], 0, "node-a", f"worker 0 of Ray Train: {LOST}; worker 1 failed, too"),
        ([(4, None, "gone")], None, None, "worker 4 of Ray Train: gone"),
        ([(4, 9, "gone")], None, None, "worker 4 of Ray Train: gone"),
        ([], None, None, "Ray Train could not start its workers"),
    ],
)
def test_the_worker_that_failed_first_is_named(
    failures: list[tuple[int, int | None, str]], rank: int | None, node: str | None, message: str
) -> None:
    found = worker_failure(event(*failures), NODES)
    assert (found.cause, found.rank, found.node, found.message) == (CAUSE, rank, node, message)
    assert not found.is_repairable
