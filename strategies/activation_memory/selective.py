"""Selective recompute: keeps results of chosen operators in the forward pass and returns them, in order, in the recomputation.

Two kinds of result are on the operator list but are not kept:

- a result that only leads to another kept result (`only_for_kept`: partial sums before their reduction; whatever is inside
  `as_one`: the gathered input of linear layers, chunks of a product); the recomputation does not compute it either;
- results after which nothing was saved for the backward pass (a block's last layer), because the recomputation ends before them.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from ..dispatch_mode import DispatchMode, entered_modes, operator_name
from .version_counter import version, without_graph

#: Whether an operator's results are kept, by its name.
Chosen = Callable[[str], bool]

_ONLY_FOR_KEPT: ContextVar[bool] = ContextVar("only_for_kept", default=False)
_WATCHED: ContextVar[Callable[[Tensor], Any] | None] = ContextVar("watched", default=None)

#: Sums, views and collectives save nothing for their backward pass. `prim::device` asks where a fake tensor is, in dry runs.
QUIET = frozenset({"aten::add", "aten::view", "aten::_unsafe_view", "aten::detach", "prim::device"})
COLLECTIVES = "_c10d_functional::"

#: The operator of what is kept as one, as messages name it.
_ONE = "several operators as one"


@contextmanager
def only_for_kept() -> Iterator[None]:
    """Inside, results are used only by results that are kept, so they need not be kept themselves."""
    token = _ONLY_FOR_KEPT.set(True)
    try:
        yield
    finally:
        _ONLY_FOR_KEPT.reset(token)


def as_one(make: Callable[[], Sequence[Tensor]]) -> list[Tensor]:
    """What `make` returns, kept as the results of one operator: a recomputation does not call it.

    For the forward pass of an autograd function, where nothing has a graph. The compiler sees the operators inside.
    """
    modes = [] if torch.compiler.is_compiling() else entered_modes()
    mode = next((mode for mode in reversed(modes) if isinstance(mode, _Selective)), None)
    return list(make()) if mode is None else mode.as_one(make)


@contextmanager
def watched(keep: Callable[[Tensor], Any]) -> Iterator[None]:
    """Call `keep` with each tensor that autograd saves inside. What `keep` returns lives as long as the saved tensor."""
    token = _WATCHED.set(keep)
    try:
        yield
    finally:
        _WATCHED.reset(token)


@dataclass
class _Kept:
    """The result of `op`. If it only leads to kept results, just its shape, in a storage of one element."""

    op: Any
    result: Any
    versions: list[int]
    watcher: Any = None


def contexts(chosen: Chosen) -> tuple[DispatchMode, DispatchMode]:
    """The modes for both passes of one call, for the `context_fn` of `torch.utils.checkpoint`."""
    kept: list[_Kept] = []
    return _First(chosen, kept), _Second(chosen, kept)


class _Selective(DispatchMode):
    """The mode of one of the two passes."""

    @abstractmethod
    def as_one(self, make: Callable[[], Sequence[Tensor]]) -> list[Tensor]: ...


class _First(_Selective):
    """Keeps a result as soon as it is certain that the recomputation reaches it."""

    def __init__(self, chosen: Chosen, kept: list[_Kept]) -> None:
        super().__init__()
        self._chosen, self._kept = chosen, kept
        self._last: list[_Kept] = []
        self._inside = False

    def as_one(self, make: Callable[[], Sequence[Tensor]]) -> list[Tensor]:
        self._settle()  # what `make` is a part of may save its inputs
        self._inside = True
        try:
            results = list(make())
        finally:
            self._inside = False
        self._last.append(_noted(_ONE, results))
        return results

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._inside:
            return func(*args, **(kwargs or {}))
        name = operator_name(func)
        if name not in QUIET and not name.startswith(COLLECTIVES):
            self._settle()  # `func` may save its inputs
        result = func(*args, **(kwargs or {}))
        if self._chosen(name):
            self._last.append(_noted(func, result))
        return result

    def __exit__(self, *reason: Any) -> None:
        self._last.clear()
        super().__exit__(*reason)  # type: ignore[no-untyped-call]

    def _settle(self) -> None:
        keep = _WATCHED.get()
        for entry in self._last:
            if keep is not None and entry.versions:
                entry.watcher = [keep(tensor) for tensor in _tensors(entry.result)]
        self._kept += self._last
        self._last = []


class _Second(_Selective):
    """Returns the kept results, and computes the others."""

    def __init__(self, chosen: Chosen, kept: list[_Kept]) -> None:
        super().__init__()
        self._chosen, self._kept, self._next = chosen, kept, 0

    def __enter__(self) -> Self:
        self._next = 0
        return super().__enter__()  # type: ignore[no-any-return, no-untyped-call]

    def as_one(self, make: Callable[[], Sequence[Tensor]]) -> list[Tensor]:
        return list(make()) if self._next == len(self._kept) else self._result(_ONE)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self._chosen(operator_name(func)) or self._next == len(self._kept):
            return func(*args, **(kwargs or {}))
        return self._result(func)

    def _result(self, op: Any) -> Any:
        """The next kept result."""
        entry = self._kept[self._next]
        self._next += 1
        if entry.op is not op:
            raise RuntimeError(f"a block ran {op} when it was recomputed, but {entry.op} in its forward pass")
        if entry.versions and entry.versions != _versions(entry.result):
            raise RuntimeError(f"the kept result of {op} was changed in place")
        return _mapped(Tensor.detach if entry.versions else torch.empty_like, entry.result)


def _noted(op: Any, result: Any) -> _Kept:
    """`result` without its graph, or only its shape."""
    if _ONLY_FOR_KEPT.get():
        return _Kept(op, _mapped(lambda t: t.new_empty(()).expand(t.shape), result), [])
    kept = _mapped(without_graph, result)
    return _Kept(op, kept, _versions(kept))


def _mapped(change: Callable[[Tensor], Tensor], result: Any) -> Any:
    """`result` with its tensors changed."""
    if isinstance(result, list | tuple):
        return type(result)(_mapped(change, value) for value in result)
    return change(result) if isinstance(result, Tensor) else result


def _tensors(result: Any) -> list[Tensor]:
    return [value for value in (result if isinstance(result, list | tuple) else [result]) if isinstance(value, Tensor)]


def _versions(result: Any) -> list[int]:
    return [version(tensor) for tensor in _tensors(result)]
