import pytest

from shardyard.service.policies.retry import INFRASTRUCTURE
from shardyard.workers.messages.rank_event import FailedEvent, facts_of
from shardyard.workers.storage.errors import StorageDenied, StorageError, StorageUnreachable
from shardyard.workers.supervisor.policies.failures import Failure, raised


def test_a_failure_says_rank_and_traceback() -> None:
    text = Failure("exception", 2, "ValueError: no", "node", "Traceback …").text()
    assert text == "rank 2: ValueError: no\n\nTraceback …"


@pytest.mark.parametrize(
    ("error", "blamed"), [(StorageUnreachable("away"), True), (StorageDenied("no such bucket"), False)]
)
def test_storage_that_is_away_is_no_fault_of_the_training_code(error: StorageError, blamed: bool) -> None:
    failed = FailedEvent(type=type(error).__name__, message=str(error), traceback="", facts=facts_of(error))
    failure = raised(failed, 0, None)
    assert (failure.cause in INFRASTRUCTURE) == blamed
    assert failure.cause == ("storage_unreachable" if blamed else "exception")
