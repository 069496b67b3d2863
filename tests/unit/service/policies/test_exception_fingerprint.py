from typing import Any

import pytest

from shardyard.service.policies.exception_fingerprint import fingerprint

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
    assert fingerprint(RAISED | one) == fingerprint(RAISED | two)


def test_an_exception_in_an_unknown_step_is_like_no_other() -> None:
    """A program's exit status says nothing of how far it got."""
    assert fingerprint({"message": "ProgramFailed: the program exited with status 1", "raised_in": None}) is None
    assert fingerprint({"message": "ValueError: no", "traceback": TRACEBACK}) is None
    assert fingerprint(RAISED | {"raised_in": 0}) is not None
