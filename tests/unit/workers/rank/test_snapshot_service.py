"""A supervisor's calls about snapshots renew the actor's lease; another rank's do not, or actors would keep each other alive."""

import os
from collections.abc import Awaitable, Callable, Iterator

import pytest

from shardyard.workers.rank.lease import Lease
from shardyard.workers.rank.snapshot_service import SnapshotService
from shardyard.workers.snapshot import shared_memory
from shardyard.workers.snapshot.replication import Chunk, Stale

SIZE = shared_memory.START + 100


class CountedLease(Lease):
    """Counts its renewals."""

    def __init__(self) -> None:
        super().__init__(600.0, lambda: None)
        self.renewals = 0

    def renew(self) -> None:
        self.renewals += 1


@pytest.fixture
def served() -> Iterator[tuple[SnapshotService, CountedLease]]:
    """Rank 0 in generation 2, with its state of step 7."""
    lease = CountedLease()
    service = SnapshotService(lease)
    service.store.reserve(0, 2, None)
    own = service.store.own
    shared_memory.reserve(own[0], SIZE)
    shared_memory.seal(own[0], shared_memory.Header(7, 0, SIZE))
    yield service, lease
    for fd in own:
        os.close(fd)


@pytest.mark.parametrize(
    ("call", "found"),
    [
        pytest.param(lambda one: one.snapshot_steps(), [7], id="steps"),
        pytest.param(lambda one: one.all_steps(), {0: [7]}, id="all steps"),
        pytest.param(lambda one: one.replica_steps(1), [], id="replica steps"),
        pytest.param(lambda one: one.snapshot_header(0, 6), None, id="header"),
        pytest.param(lambda one: one.forget_snapshots(0), None, id="forget"),
    ],
)
async def test_a_supervisors_call_renews_the_lease(
    served: tuple[SnapshotService, CountedLease], call: Callable[[SnapshotService], Awaitable[object]], found: object
) -> None:
    service, lease = served
    assert await call(service) == found
    assert lease.renewals == 1


async def test_another_ranks_call_does_not(served: tuple[SnapshotService, CountedLease]) -> None:
    service, lease = served
    old = Chunk(1, 1, shared_memory.Header(7, 0, SIZE), 0, b"")
    with pytest.raises(Stale):
        await service.write_replica(old)
    assert lease.renewals == 0
