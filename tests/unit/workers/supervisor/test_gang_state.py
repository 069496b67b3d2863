"""What the journal keeps can be read by the next supervisor, and by every later version of this code."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardyard.workers.messages.event_buffer import Spool
from shardyard.workers.messages.exec_request import Exec
from shardyard.workers.messages.fault_request import Fault
from shardyard.workers.messages.gang_spec import GangSpec, LossSpikeLimits, StragglerLimits
from shardyard.workers.messages.profile_request import Profile
from shardyard.workers.messages.rendezvous import Reservation, SnapshotHandle
from shardyard.workers.messages.trace_request import Trace
from shardyard.workers.supervisor.gang import Gang
from shardyard.workers.supervisor.gang_secrets import GangSecrets
from shardyard.workers.supervisor.gang_state import (
    VERSION,
    ExecsState,
    FaultsState,
    GangState,
    HeldEvent,
    JournalUnreadable,
    MergerState,
    PendingExec,
    PendingFault,
    PendingTrace,
    ProfilesState,
    RankState,
    Repair,
    SpareState,
    TracesState,
    schema,
)
from shardyard.workers.supervisor.journal.journal import Journal, events_of, opened, sealed
from shardyard.workers.supervisor.policies.failures import Failure
from shardyard.workers.supervisor.policies.loss_spike import LossSpikeState
from shardyard.workers.supervisor.policies.repair_budget import BudgetState
from shardyard.workers.supervisor.policies.straggler import StragglersState
from shardyard.workers.supervisor.repair import Generations

DATA = Path(__file__).parents[3] / "data/journal"
REPAIR = Repair("rank_lost", 1, 1700000000.5, [1], 3, 40)
#: Every field differs from its default.
STATE = GangState(
    phase="repairing",
    stopping="preempt",
    generation=3,
    restore=40,
    distrusted=True,
    snapshots_off=True,
    repair=REPAIR,
    failures=[Failure("hang", 0, "no progress", "node-a", "Traceback", {"stacks": [{"ranks": [0], "stack": "…"}]})],
    budget=BudgetState(2, 1, 40),
    ranks=[
        RankState(
            rank=0,
            bundle=1,
            name="shardyard-a-1-rank-0.2",
            reservation=Reservation(0, "node-a", "10.0.0.1", 4001, "eth0", 3, 77, (7, 8)),
            done=True,
            exited=True,
            failed=True,
            stopped=True,
            pulled=120,
            step=41,
            lost=True,
            snapshots=SnapshotHandle("node-a", 77, (7, 8)),
            replica_holder="shardyard-a-1-rank-1",
        ),
        RankState(1, reservation=Reservation(1, "node-b", "10.0.0.2", None, None, 3, 78, ())),
    ],
    spares=[SpareState(2, "shardyard-a-1-rank-spare-0f", "node-b")],
    merger=MergerState(
        state="recovering",
        newest_step=40,
        first_step_at=1700000000.25,
        repair=REPAIR,
        open_steps={41: {0: {"step": 41, "loss": 2.5, "step_s": 0.125}}},
        held=[HeldEvent(41, {"seq": 9, "ts": 1.5, "kind": "eval", "data": {"step": 41, "loss": None}})],
        newest_facts={"eval": 40},
    ),
    stragglers=StragglersState([1], {0: 0.1, 1: 0.15}),
    loss_spike=LossSpikeState([2.5, 2.25], 3, 1),
    faults=FaultsState([PendingFault(Fault("f1", "slow-rank", 1, 10.0, 5.0), "shardyard-a-1-rank-1")], ["f0"]),
    traces=TracesState([PendingTrace(Trace("t1", 3), True, {1: (7, 9)})], ["t0"]),
    execs=ExecsState([PendingExec(Exec("x1", 1, ("ls", "-l"), 5), "shardyard-a-1-rank-1")], ["x0"]),
    profiles=ProfilesState([Profile("p1", "operators", 1, 5, "/files", 1000)], ["p0"]),
)
#: By version: what came later.
LACKED: dict[int, dict[str, Any]] = {
    1: {"execs": ExecsState(), "profiles": ProfilesState(), "snapshots_off": False},
    2: {"profiles": ProfilesState([Profile("p1", "cpu", 1, 5, "/files", 1000)], ["p0"]), "snapshots_off": False},
    3: {"snapshots_off": False},
    4: {},
}
EVENTS: list[Any] = [{"seq": n, "ts": 1.5, "kind": "log", "data": {"lines": ["é", "\ud800"]}} for n in (18, 19)]


def gang(state: GangState | None) -> Gang:
    spec, spool = (
        GangSpec("shardyard-a-1", {}, 2, straggler=StragglerLimits(), loss_spike=LossSpikeLimits()),
        Spool(1 << 20),
    )
    return Gang(spec, Journal(spec.name, spool, bytes), spool, GangSecrets(False), state)


def test_what_is_written_is_read() -> None:
    assert GangState.from_json(STATE.to_json()) == STATE
    assert GangState.from_json(GangState().to_json()) == GangState() and GangState().to_json() == b"{}"


def test_the_errors_of_ranks_that_lost_their_peer_are_written_once() -> None:
    """All of them would be in every write of the journal, for which a repair waits."""
    failed = gang(GangState(phase="training", ranks=[RankState(rank) for rank in range(100)]))
    before, generations = len(failed.to_state().to_json()), Generations(failed)
    echo = Failure("exception", 0, "RuntimeError: Connection closed by peer", "node-a", "x" * (64 << 10))
    for rank in range(1, 100):
        generations.fail(replace(echo, rank=rank))
    assert failed.root_cause.rank == 1 and failed.ended.is_set()
    lost = Failure("rank_lost", 0, "the trainer was killed by SIGKILL", "node-a")
    generations.fail(lost)
    assert failed.root_cause == lost and len(failed.to_state().to_json()) < before + (65 << 10)


@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_every_version_that_was_written_can_be_read(version: int) -> None:
    folder = DATA / f"v{version}"
    last, state = opened((folder / "state").read_bytes())
    assert last == 19 and events_of((folder / "events").read_bytes()) == EVENTS
    assert GangState.from_json(state) == replace(STATE, **LACKED[version])


def test_no_field_changes_without_a_new_version() -> None:
    committed = json.loads((DATA / "schema.json").read_text())
    assert json.loads(json.dumps(schema())) == committed, (
        "the journal's format changed: raise VERSION in workers/supervisor/gang_state.py, have a journal of the new version in "
        "tests/data/journal, and either read the older versions or say in the changelog that running gangs are retried"
    )


def test_a_supervisor_goes_on_from_its_predecessors_state() -> None:
    assert gang(STATE).to_state() == STATE
    assert gang(None).to_state() == GangState()


@pytest.mark.parametrize(
    "entry",
    [
        (DATA / "pickled").read_bytes(),  # as the first journals were written
        b"",
        b'{"last":1}\n{}',
        sealed(1, STATE.to_json()).replace(b'"version":4', b'"version":5', 1),
        sealed(1, STATE.to_json())[:-9],
        sealed(1, b'{"phase":"mending"}'),
        sealed(1, b'{"colour":"red"}'),
        sealed(1, b'{"ranks":[{"bundle":1}]}'),
        sealed(1, b'{"generation":"3"}'),
    ],
    ids=["pickle", "empty", "no version", "other version", "cut", "value", "unknown", "missing", "type"],
)
def test_what_does_not_fit_is_unreadable(entry: bytes) -> None:
    with pytest.raises(JournalUnreadable):
        GangState.from_json(opened(entry)[1])


@pytest.mark.parametrize("batch", [b"", b"[]", b'[{"seq":1}]', b"7", (DATA / "pickled").read_bytes()])
def test_damaged_events_are_unreadable(batch: bytes) -> None:
    with pytest.raises(JournalUnreadable):
        events_of(batch)


def test_the_last_lines_of_ranks_are_not_written() -> None:
    supervised = gang(STATE)
    before = supervised.to_state().to_json()
    supervised.members[0].log.extend(["a line"] * 40)
    assert supervised.to_state().to_json() == before
