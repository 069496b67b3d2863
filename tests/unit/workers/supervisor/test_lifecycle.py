"""The table of phases. What happens in each: tests/integration/workers/supervisor."""

from typing import get_args

from shardyard.workers.supervisor.gang_state import Phase
from shardyard.workers.supervisor.lifecycle import MOVES


def test_every_phase_has_its_moves_and_only_the_last_has_none() -> None:
    assert list(MOVES) == list(get_args(Phase))
    assert [phase for phase, following in MOVES.items() if not following] == ["ended"]


def test_every_phase_is_reached_and_leads_to_the_end() -> None:
    assert {following for moves in MOVES.values() for following in moves} == set(MOVES) - {"placing"}
    assert all("ending" in moves for phase, moves in MOVES.items() if phase not in ("ending", "ended"))
    assert MOVES["ending"] == ("ended",), "an end cannot be undone"
