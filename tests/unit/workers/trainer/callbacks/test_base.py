import inspect
from typing import Any

import pytest

from shardyard.workers.trainer.callbacks.base import Callback, Callbacks

HOOKS = [name for name, _ in inspect.getmembers(Callback, inspect.isfunction)]


@pytest.mark.parametrize("hook", HOOKS)
def test_each_hook_is_called_on_all_in_their_order(hook: str) -> None:
    called: list[tuple[str, tuple[Any, ...]]] = []

    def noted(name: str) -> Callback:
        callback = Callback()
        setattr(callback, hook, lambda *given: called.append((name, given)))
        return callback

    given = tuple(range(len(inspect.signature(getattr(Callback, hook)).parameters) - 1))
    getattr(Callbacks([noted("first"), Callback(), noted("last")]), hook)(*given)
    assert called == [("first", given), ("last", given)]
