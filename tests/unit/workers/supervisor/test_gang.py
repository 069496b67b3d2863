import ast
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from harness.house import ROOT

from shardyard.workers.messages.event_buffer import Spool
from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.supervisor.event_pump import PumpedEvent
from shardyard.workers.supervisor.gang import Gang
from shardyard.workers.supervisor.gang_secrets import GangSecrets
from shardyard.workers.supervisor.journal.journal import Journal
from shardyard.workers.supervisor.policies.failures import Failure, exited
from shardyard.workers.supervisor.ranks.members import Member
from shardyard.workers.supervisor.repair import Generations

#: The modules that may change a gang's attributes.
WRITERS = {"lifecycle.py", "repair.py", "absences.py"}
#: Methods that change what an attribute has, of the attributes that are not objects of a class of ours.
CHANGING = {"add", "append", "clear", "extend", "insert", "pop", "remove", "set"}
CHANGEABLE = {"ended", "failures", "members"}


def test_a_gang_is_changed_by_the_modules_of_its_life_alone() -> None:
    modules = sorted((ROOT / "workers" / "supervisor").rglob("*.py"))
    found = {path.name: lines for path in modules if (lines := sorted(changes(ast.parse(path.read_text()))))}
    assert {"lifecycle.py", "repair.py"} <= found.keys()
    assert {name: lines for name, lines in found.items() if name not in WRITERS} == {}


@pytest.mark.parametrize(
    ("line", "is_change"),
    [
        ("gang.phase = 'training'", True),
        ("self.gang.generation += 1", True),
        ("self.gang.repair.restored, other = 1, 2", True),
        ("gang.members[0] = member", True),
        ("self.gang.failures.append(failure)", True),
        ("del gang.failures[0]", True),
        ("self.gang = Gang(spec)", False),
        ("phase = gang.phase", False),
        ("gang.merger.add(event)", False),
    ],
)
def test_what_changes_a_gang(line: str, is_change: bool) -> None:
    assert list(changes(ast.parse(line))) == ([1] if is_change else [])


def changes(tree: ast.AST) -> Iterator[int]:
    """Lines that assign or delete an attribute of a variable or an attribute `gang`, or change what it has."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load) and of_gang(node):
            yield node.lineno
        if isinstance(node, ast.Call) and isinstance(method := node.func, ast.Attribute) and method.attr in CHANGING:
            owner = method.value
            if isinstance(owner, ast.Attribute) and owner.attr in CHANGEABLE and of_gang(owner):
                yield node.lineno


def of_gang(node: ast.expr) -> bool:
    """Whether this is an attribute of a gang, an attribute of one, or an item of one."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
        if (isinstance(node, ast.Name) and node.id == "gang") or (
            isinstance(node, ast.Attribute) and node.attr == "gang"
        ):
            return True
    return False


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


@pytest.mark.parametrize("event", ["done", "failed"])
@pytest.mark.parametrize("step", [1, -1])
def test_the_end_of_each_rank_takes_a_few_looks_at_the_others(step: int, event: str) -> None:
    """At each rank's end: of ten thousand ranks a look at all of them would take seconds."""
    looks = 0

    class Looked(Member):
        def __getattribute__(self, name: str) -> Any:
            nonlocal looks
            looks += name in ("done", "absence", "rank")
            return super().__getattribute__(name)

    ranks = 200
    gang = gang_of(ranks)
    gang.members, gang.phase = [Looked(rank) for rank in range(ranks)], "training"
    generations = Generations(gang)
    for member in gang.members[::step]:
        assert not gang.all_done
        ended = Failure("exception", 0, "ValueError: no") if event == "failed" else None
        generations._apply(member, PumpedEvent(1, done=event == "done", failed=event == "failed", failure=ended))
    assert gang.ended.is_set() and gang.all_done == (event == "done")
    for member in gang.members[::step]:
        generations._apply(member, PumpedEvent(2, exited=True))
    assert looks < 20 * ranks


def test_a_gang_is_done_when_each_rank_is() -> None:
    gang = gang_of(3)
    assert not gang.all_done
    gang.members = [Member(rank) for rank in range(3)]
    for rank in (1, 0, 2):
        assert not gang.all_done
        gang.members[rank].done = True
    assert gang.all_done
    gang.members[1].renew()
    assert not gang.all_done
