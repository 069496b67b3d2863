"""A thread can enter the modes of another one, and torch's notes on them survive two threads that enter and leave by turns."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _python_dispatch

from shardyard.strategies import torch_version
from shardyard.strategies.dispatch_mode import DispatchMode, entered_modes, notes_kept, operator_name


class Counts(DispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(operator_name(func))
        return func(*args, **(kwargs or {}))


def on_another_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_a_thread_is_in_no_mode_until_it_enters_one() -> None:
    with Counts() as outer, Counts() as inner:
        modes = entered_modes()
        assert modes == [outer, inner]
        on_another_thread(lambda: torch.ones(1) + 1)
        assert not inner.names

        def enters_them() -> None:
            with modes[0], modes[1]:
                torch.ones(1)

        on_another_thread(enters_them)
        assert inner.names == outer.names == ["aten::ones"]
        torch.ones(1)
        assert len(inner.names) == 2
    assert entered_modes() == []


def test_the_notes_are_as_before_though_modes_were_left_in_another_order() -> None:
    first, second = Counts(), Counts()
    entered, left = threading.Event(), threading.Event()

    def other() -> None:
        with second:
            entered.set()
            left.wait()

    with notes_kept():
        thread = threading.Thread(target=other)
        first.__enter__()
        thread.start()
        entered.wait()
        first.__exit__(None, None, None)
        left.set()
        thread.join()
        assert _python_dispatch.is_in_torch_dispatch_mode()  # though no thread is in one
    assert not _python_dispatch.is_in_torch_dispatch_mode()
    assert not _python_dispatch.is_in_any_mode_without_ignore_compile_internals()


def test_another_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_version, "TRIED", ("1.0.",))
    with pytest.raises(RuntimeError, match="_python_dispatch is private to torch"):
        Counts()
