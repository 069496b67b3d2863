import signal

import pytest

from shardyard.workers.messages.event_buffer import Spool
from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.supervisor.gang import Gang
from shardyard.workers.supervisor.gang_secrets import GangSecrets
from shardyard.workers.supervisor.journal.journal import Journal
from shardyard.workers.supervisor.policies.failures import Failure, exited


def test_the_root_cause_is_no_secondary_error_of_another_failure() -> None:
    spool = Spool(1 << 20)
    gang = Gang(GangSpec("shardyard-a-1", {}, 2), Journal("shardyard-a-1", spool, bytes), spool, GangSecrets(False))
    echo = Failure("exception", 0, "RuntimeError: [gloo] Connection closed by peer [127.0.0.1]:1")
    lost = Failure("rank_lost", 1, "the trainer was killed by SIGKILL")
    gang.failures = [echo]
    assert gang.root_cause == echo
    gang.failures = [echo, lost]
    assert gang.root_cause == lost
    wrapped = Failure("exception", 0, "RuntimeError: failed to run forward", None, f"{echo.message}\n\nThe above …")
    gang.failures = [wrapped, lost]
    assert wrapped.is_repairable and gang.root_cause == lost
    gang.failures = [echo, Failure("exception", 1, "ValueError: no"), lost]
    assert gang.root_cause.message == "ValueError: no"


def test_an_abort_by_nccls_watchdog_is_an_echo_of_what_came_first() -> None:
    spool = Spool(1 << 20)
    gang = Gang(GangSpec("shardyard-a-1", {}, 2), Journal("shardyard-a-1", spool, bytes), spool, GangSecrets(False))
    connection = Failure("exception", 0, "RuntimeError: Connection closed by peer")
    abort = exited(1, "node-a", -signal.SIGABRT, "Watchdog caught collective operation timeout: WorkNCCL(…)")
    gang.failures = [connection, abort]
    assert gang.root_cause == abort
    lost = Failure("rank_lost", 2, "the trainer was killed by SIGKILL")
    gang.failures = [abort, connection, lost]
    assert gang.root_cause == lost


OWN = Failure(
    "exception",
    1,
    "ConnectionRefusedError: [Errno 111] Connection refused",
    "node-a",
    'Traceback (most recent call last):\n  File "/usr/lib/python3.11/socket.py", line 838, in create_connection\n'
    "    sock.connect(sa)\nConnectionRefusedError: [Errno 111] Connection refused\n",
)
ECHO = Failure("exception", 0, "RuntimeError: [gloo] Connection closed by peer [127.0.0.1]:1")


def gang_of(ranks: int, *failures: Failure) -> Gang:
    spool = Spool(1 << 20)
    gang = Gang(GangSpec("shardyard-a-1", {}, ranks), Journal("shardyard-a-1", spool, bytes), spool, GangSecrets(False))
    gang.failures = list(failures)
    return gang


@pytest.mark.parametrize(
    ("ranks", "failures"), [(1, (OWN,)), (2, (OWN,)), (2, (OWN, ECHO)), (2, (ECHO, OWN)), (2, (OWN, OWN))]
)
def test_a_connection_of_the_users_own_is_the_root_cause_of_its_peers_errors(
    ranks: int, failures: tuple[Failure, ...]
) -> None:
    gang = gang_of(ranks, *failures)
    assert gang.root_cause == OWN
    assert not gang.is_repairable(OWN) and gang.final_reason(OWN) == "exception"


@pytest.mark.parametrize("lost", [Failure("rank_lost", 0, "killed"), Failure("exception", 0, "ValueError: no")])
def test_a_connection_of_the_users_own_follows_from_a_peer_that_really_failed(lost: Failure) -> None:
    assert gang_of(2, OWN, lost).root_cause == lost


def test_a_gang_of_one_rank_has_no_peer_to_lose() -> None:
    alone, two = gang_of(1, ECHO), gang_of(2, ECHO)
    assert (alone.is_repairable(ECHO), alone.final_reason(ECHO)) == (False, "exception")
    assert (two.is_repairable(ECHO), two.final_reason(ECHO)) == (True, "connection_lost")
    assert alone.is_repairable(Failure("rank_lost", 0, "the trainer was killed by SIGKILL"))
