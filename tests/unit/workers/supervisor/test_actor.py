from shardyard.workers.supervisor.actor import Supervisor
from shardyard.workers.supervisor.policies.failures import Failure
from shardyard.workers.supervisor.ranks.placement_group import Order


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
    assert wrapped.is_repairable and supervisor._root_cause() == lost
    supervisor.failures = [echo, Failure("exception", 1, "ValueError: no"), lost]
    assert supervisor._root_cause().message == "ValueError: no"
