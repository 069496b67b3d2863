from typing import Any

import pytest

from shardyard.service.policies.exception_fingerprint import fingerprint
from shardyard.workers.messages.rank_event import LAST_LINE

TRACEBACK = """Traceback (most recent call last):
  File "loop.py", line 139, in run
    self._train_step(step)
  File "mine.py", line 10, in forward
    raise ValueError(x)
ValueError: no
"""
RAISED: dict[str, Any] = {"message": "ValueError: no", "traceback": TRACEBACK, "raised_in": 7, "rank": 0, "step": 5}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rank": 3, "node": "n", "step": 6},
        {"traceback": TRACEBACK.replace("line 139", "line 140")},
    ],
)
def test_the_same_exception(changes: dict[str, Any]) -> None:
    assert fingerprint(RAISED | changes) == fingerprint(RAISED)


@pytest.mark.parametrize(
    "changes",
    [
        {"message": "ValueError: yes"},
        {"message": "KeyError: no"},
        {"raised_in": 8},
        {"traceback": TRACEBACK.replace("line 10,", "line 11,")},
        {"traceback": None},
    ],
)
def test_another_exception(changes: dict[str, Any]) -> None:
    assert fingerprint(RAISED | changes) != fingerprint(RAISED)


def test_addresses_are_chance() -> None:
    one, two = ({"message": f"TypeError: <Model at {at}> in /tmp/tmp{at}/x"} for at in ("0x7f00aa", "0x7f11bb"))
    assert fingerprint(one) == fingerprint(two)


def test_what_a_program_printed_last_does_not_make_another_exception() -> None:
    """It may have the time of day in it."""
    status, other = ({"message": f"ProgramFailed: the program exited with status {n}"} for n in (1, 2))
    printed = [{"message": f"{status['message']}{LAST_LINE}12:00:0{second} failed"} for second in range(2)]
    same = {fingerprint(RAISED | changes) for changes in (status, *printed)}
    assert len(same) == 1 and fingerprint(RAISED | other) not in same
