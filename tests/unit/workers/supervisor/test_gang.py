import signal

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
