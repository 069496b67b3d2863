import signal
import socket
import subprocess
import sys
import threading
import traceback
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import pytest
from harness.patience import PATIENCE_S
from torch.distributed import DistNetworkError, TCPStore  # type: ignore[attr-defined]
from torch.utils.data import DataLoader, Dataset

from shardyard.service.policies.retry import INFRASTRUCTURE
from shardyard.strategies.activation_memory.state_file import StateDiskError
from shardyard.strategies.data_parallel import inbox
from shardyard.workers.messages.rank_event import FailedEvent, facts_of
from shardyard.workers.storage.errors import StorageDenied, StorageError, StorageUnreachable
from shardyard.workers.supervisor.policies.failures import Failure, brief, exited, is_redundant, raised, watchdog_line


def test_a_failure_says_rank_and_traceback() -> None:
    text = Failure("exception", 2, "ValueError: no", "node", "Traceback …").text()
    assert text == "rank 2: ValueError: no\n\nTraceback …"


ECHO = Failure("exception", 0, "RuntimeError: [gloo] Connection closed by peer [127.0.0.1]:1", "a", "Traceback …")
OWN = Failure("exception", 0, "ConnectionRefusedError: Connection refused", "a", "Traceback …")
RAISED = Failure("exception", 0, "ValueError: no", "a", "Traceback …")
LOST = Failure("rank_lost", 0, "the trainer was killed by SIGKILL", "a")
ABORT = exited(0, "a", -signal.SIGABRT, "Watchdog caught collective operation timeout: WorkNCCL(…)")


@pytest.mark.parametrize(
    ("known", "failure", "redundant"),
    [
        ([], ECHO, False),
        ([ECHO], ECHO, True),
        ([ECHO], OWN, False),
        ([ECHO], ABORT, False),
        ([ABORT, ECHO], ABORT, True),
        ([ECHO, OWN], RAISED, False),
        ([RAISED], ECHO, True),
        ([LOST], RAISED, True),
        ([LOST], LOST, False),
        ([RAISED], Failure("hang", 1, "no progress"), False),
        ([RAISED], Failure("replica_mismatch", 1, "weight differs", "a", "Traceback …"), True),
    ],
)
def test_a_failure_is_redundant_if_it_can_be_no_root_cause_and_shows_no_lost_node(
    known: list[Failure], failure: Failure, redundant: bool
) -> None:
    assert is_redundant(failure, known) == redundant


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
        for failure in (raised(failed, 3, "node"), failure_of(error)):
            assert (failure.secondary, failure.is_repairable, failure.reason) == (True, True, "connection_lost"), (
                failure
            )


def failure_of(error: Exception) -> Failure:
    """As a trainer or a program reports it."""
    text = "".join(traceback.format_exception(error))
    failed = FailedEvent(type=type(error).__name__, message=str(error), traceback=text, facts=facts_of(error))
    return raised(failed, 1, "node")


class Slow(Dataset[int]):
    """Its item comes when `over` has something to read."""

    def __init__(self, over: Connection) -> None:
        self.over = over

    def __len__(self) -> int:
        return 1

    def __getitem__(self, _: int) -> int:
        self.over.poll(PATIENCE_S)
        return 0


def waits_for_a_loader() -> None:
    """Its worker goes on when the time limit has passed, and not before, however long this process waits for a core."""
    over, end = Pipe(duplex=False)
    with over, end:
        try:
            next(iter(DataLoader(Slow(over), num_workers=1, timeout=0.05)))
        finally:
            end.send(None)


def with_no_listener(open_it: Callable[[int], object]) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        open_it(bound.getsockname()[1])


def times_out() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.01)
        ours.recv(1)


def wrapped() -> None:
    """As requests does: the exception that ends the program has another one as its cause."""
    try:
        times_out()
    except TimeoutError as error:
        raise RuntimeError("HTTPConnectionPool(host='labels', port=80): Read timed out. (read timeout=0.01)") from error


#: Without a proxy, which the environment may name.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
OWN_CONNECTIONS: dict[str, tuple[str, Callable[[], object]]] = {
    "urllib": (
        "Connection refused",
        lambda: with_no_listener(lambda port: DIRECT.open(f"http://127.0.0.1:{port}")),
    ),
    "socket": (
        "Connection refused",
        lambda: with_no_listener(lambda port: socket.create_connection(("127.0.0.1", port))),
    ),
    "time limit of a socket": ("timed out", times_out),
    "requests": ("Read timed out", wrapped),
    "subprocess": (
        "timed out after",
        lambda: subprocess.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.01, check=True),
    ),
    "DataLoader": ("timed out after", waits_for_a_loader),
}


@pytest.mark.parametrize("name", OWN_CONNECTIONS)
def test_a_connection_of_the_users_own_is_no_lost_peer(name: str) -> None:
    """It may be the echo of another rank's end; without one it is an exception as any other."""
    words, call = OWN_CONNECTIONS[name]
    with pytest.raises(Exception, match=words) as caught:
        call()
    failure = failure_of(caught.value)
    assert failure.secondary and not failure.is_lost_connection, failure
    assert (failure.is_repairable, failure.reason) == (False, "exception")


GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:40321"
ABORTED = "NCCL communicator was aborted on rank 1."
GROUP = 'Traceback (most recent call last):\n  File "/env/torch/distributed/c10d_logger.py", line 83, in wrapper\n'


@pytest.mark.parametrize("message", [GLOO, ABORTED])
def test_an_error_of_a_process_group_is_a_lost_peer_wherever_it_is_raised(message: str) -> None:
    """Also where the innermost frame is the program's own, as after `work.wait()` and in a backward pass."""
    with pytest.raises(RuntimeError) as caught:
        raise RuntimeError(message)
    with pytest.raises(ValueError, match="step 7") as chained:
        raise ValueError("the program failed at step 7") from caught.value
    for failure in (failure_of(caught.value), failure_of(chained.value)):
        assert failure.is_lost_connection and failure.is_repairable and failure.reason == "connection_lost", failure


def test_a_parameter_server_without_requests_has_lost_its_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker hangs, with a time limit that is longer than the server's wait."""
    monkeypatch.setattr(inbox, "WAIT_S", 0.01)
    with pytest.raises(TimeoutError) as caught:
        inbox.Inbox((), None).take()  # type: ignore[arg-type]
    failure = failure_of(caught.value)
    assert (failure.secondary, failure.is_repairable, failure.reason) == (True, True, "connection_lost"), failure


def test_the_innermost_frame_says_whose_exception_it_is() -> None:
    reset = "RuntimeError: Connection reset by peer"
    of_group = Failure("exception", 1, reset, "node", f"{GROUP}    return func(*args)\n{reset}\n")
    assert of_group.is_lost_connection
    own = '  File "/job/gloo/train.py", line 3, in <module>\n    read()\n'
    assert not Failure("exception", 1, reset, "node", f"{GROUP}{own}{reset}\n").is_lost_connection


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


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("first\nsecond"), "ValueError: first"),
        (TimeoutError(), "TimeoutError without a message"),
        (OSError(" "), "OSError without a message"),
    ],
    ids=str,
)
def test_an_error_says_something(error: Exception, text: str) -> None:
    assert brief(error) == text


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


@pytest.mark.parametrize(
    ("message", "failed"),
    [
        ("uncorrectable ECC error encountered", True),
        ("uncorrectable NVLink error detected during the execution", True),
        ("CUDA-capable device(s) is/are busy or unavailable", False),
        ("an illegal memory access was encountered", False),
        ("device-side assert triggered", False),
        ("unspecified launch failure", False),
        ("out of memory", False),
    ],
)
def test_a_broken_gpu_is_no_fault_of_the_training_code(message: str, failed: bool) -> None:
    """In CUDA's words, as torch raises it, and where other code raises an exception for it."""
    with pytest.raises(RuntimeError) as caught:
        raise RuntimeError(f"CUDA error: {message}\nCUDA kernel errors might be asynchronously reported")
    with pytest.raises(ValueError, match="step 7") as chained:
        raise ValueError("the program failed at step 7") from caught.value
    for failure in (failure_of(caught.value), failure_of(chained.value)):
        assert (failure.rank, failure.node, failure.secondary) == (1, "node", False)
        assert failure.reason == failure.cause == ("device_failed" if failed else "exception")
        assert (failure.is_repairable, failure.cause in INFRASTRUCTURE) == (failed, failed)
