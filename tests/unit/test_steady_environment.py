"""The variables of this test process stay where they are while tests add some (`harness/steady_environment.py`)."""

import ctypes
import os
import platform
import subprocess
import sys

import pytest

FOUND = "import os; print(sum(name.startswith('MORE_') for name in os.environ))"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's array of variables")
def test_added_variables_move_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    place = ctypes.c_void_p.in_dll(ctypes.CDLL(None), "environ")
    monkeypatch.setenv("ADDED_BEFORE", "1")
    before = place.value
    for _ in range(2):
        with monkeypatch.context() as patch:
            for number in range(200):
                patch.setenv(f"MORE_{number}", "1")
                patch.setenv(f"MORE_{number}", "2")
            assert in_c("MORE_0") == in_c("MORE_199") == b"2"
            assert subprocess.check_output([sys.executable, "-c", FOUND], text=True) == "200\n"
        assert in_c("MORE_0") is in_c("MORE_199") is None
        assert place.value == before
    assert {**os.environ} == {name: os.fsdecode(in_c(name) or b"") for name in os.environ}


def in_c(name: str) -> bytes | None:
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    found: bytes | None = getenv(name.encode())
    return found
