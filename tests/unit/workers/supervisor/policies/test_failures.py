import signal
import threading
from datetime import timedelta

import pytest
from torch.distributed import DistNetworkError, TCPStore  # type: ignore[attr-defined]

from shardyard.service.policies.retry import INFRASTRUCTURE
from shardyard.strategies.activation_memory.state_file import StateDiskError
from shardyard.workers.messages.rank_event import FailedEvent, facts_of
from shardyard.workers.storage.errors import StorageDenied, StorageError, StorageUnreachable
from shardyard.workers.supervisor.policies.failures import Failure, exited, raised, watchdog_line


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


def test_a_store_that_dies_with_rank_0_is_no_fault_of_the_training_code() -> None:
    """A peer waits in the store while rank 0, which holds it, is killed: as it is when a process group is formed."""
    held = [TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)]
    limit = timedelta(seconds=30)
    client = TCPStore("127.0.0.1", held[0].port, None, is_master=False, timeout=limit)
    death = threading.Timer(0.1, held.clear)
    death.start()
    with pytest.raises(DistNetworkError) as waited:
        client.wait(["a key that never comes"], limit)
    death.join()
    with pytest.raises(DistNetworkError) as asked:
        client.get("another")
    for error in (waited.value, asked.value):
        failed = FailedEvent(type=type(error).__name__, message=str(error), traceback="", facts=facts_of(error))
        failure = raised(failed, 3, "node")
        assert (failure.secondary, failure.is_repairable, failure.reason) == (True, True, "connection_lost"), failure


TIMED_OUT = (
    "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=58, OpType=ALLREDUCE) ran for 600060 ms"
)
STUCK = "[PG ID 0 PG GUID 0(default_pg) Rank 3] ProcessGroupNCCL's watchdog got stuck for 480 seconds"
GONE = "what():  [PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread terminated with exception: NCCL error: "
GONE += "remote process exited or there was a network error, NCCL version 2.28.9"
OWN = "Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered"


@pytest.mark.parametrize("line", [TIMED_OUT, STUCK])
def test_an_abort_by_nccls_watchdog_is_a_hang_of_no_rank(line: str) -> None:
    watchdog = watchdog_line(["step 7", f"  {line}", "Fatal Python error: Aborted"])
    assert watchdog == line
    failure = exited(3, "node", -signal.SIGABRT, watchdog)
    assert (failure.cause, failure.rank, failure.node) == ("hang", None, None) and line in failure.message
    assert failure.is_abort and failure.secondary and failure.is_repairable and failure.reason == "hang"


def test_an_abort_since_a_peer_is_gone_is_a_lost_connection() -> None:
    failure = exited(3, "node", -signal.SIGABRT, watchdog_line([GONE]))
    assert failure.secondary and not failure.is_abort and failure.reason == "connection_lost"
    assert failure.cause not in INFRASTRUCTURE, "its node is not to blame"


@pytest.mark.parametrize(("status", "hinted"), [(-signal.SIGABRT, True), (-signal.SIGKILL, False), (1, False)])
def test_an_abort_of_a_process_that_has_kept_its_group_has_a_remedy(status: int, hinted: bool) -> None:
    log = ["done", "terminate called without an active exception", "Fatal Python error: Aborted"]
    failure = exited(3, "node", status, None, log)
    assert failure.cause == "rank_lost" and ("destroy_process_group()" in failure.message) == hinted
    assert "destroy_process_group()" not in exited(3, "node", -signal.SIGABRT, None, ["done"]).message


def test_a_signal_without_a_name_has_its_number() -> None:
    assert exited(0, "node", -(signal.SIGRTMIN + 3), None).message == "the trainer was killed by signal 37"


@pytest.mark.parametrize(
    ("status", "lines"), [(-signal.SIGKILL, [TIMED_OUT]), (-signal.SIGABRT, [OWN]), (-signal.SIGABRT, []), (None, [])]
)
def test_another_end_is_a_lost_rank(status: int | None, lines: list[str]) -> None:
    """Also an abort for an error of the rank's own device."""
    failure = exited(3, "node", status, watchdog_line(lines))
    assert (failure.cause, failure.rank, failure.node) == ("rank_lost", 3, "node") and not failure.secondary


@pytest.mark.parametrize(("code", "repaired"), [("state_disk_failed", True), ("state_disk_full", False)])
def test_a_disk_under_optimizer_state_is_no_fault_of_the_training_code(code: str, repaired: bool) -> None:
    """One that fails is repaired in place. One that is full would be full again: the job gets another attempt."""
    error = StateDiskError("the disk timed out", code)
    failed = FailedEvent(type=type(error).__name__, message=str(error), traceback="", facts=facts_of(error))
    failure = raised(failed, 3, "node")
    assert (failure.cause, failure.rank, failure.is_repairable) == (code, 3, repaired)
    assert failure.cause in INFRASTRUCTURE
