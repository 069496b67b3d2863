"""Collectives as NCCL runs them: on a stream of their group, which first waits for the current one; `wait` makes the current stream wait.

A collective that is not asynchronous runs on the current stream. Until `wait`, its tensors stay allocated.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from ...strategies.telemetry.comm_counter import group_of
from .fake_streams import Stream
from .operators import Operator
from .vector_clocks import Clock, host


class CollectiveStreams:
    """The groups' streams, and what is under way on them."""

    def __init__(self) -> None:
        self._streams: dict[str, Stream] = {}
        self._works: dict[int, tuple[dist.Work, Clock, Sequence[torch.Tensor]]] = {}
        self._arriving: dict[int, tuple[Clock, Sequence[torch.Tensor]]] = {}

    def stream(self, op: Operator, args: Sequence[Any], current: Stream) -> Stream:
        """The stream on which a collective runs, ready for it."""
        if op.is_waited_for:
            return current
        if op.name.startswith("c10d::") and op.argument("asyncOp", args, {}, otherwise=True) is False:
            return current
        group = group_of(args)
        own = self._streams.get(group.group_name)
        if own is None:
            own = self._streams[group.group_name] = Stream()
            own.name = f"the stream of group {group.group_name}"
        own.wait_stream(current)
        return own

    def started(self, result: Any, stream: Stream, tensors: Sequence[torch.Tensor]) -> None:
        """A collective was started on `stream`; its result is a work handle, perhaps after tensors, or tensors to wait for."""
        clock = dict(stream.clock)
        last = result[-1] if isinstance(result, tuple) else result
        if isinstance(last, torch.ScriptObject):
            work = dist.Work.unbox(last)
            self._works[id(work)] = (work, clock, tensors)
        for tensor in [result] if isinstance(result, torch.Tensor) else result if isinstance(result, list) else []:
            self._arriving[storage_of(tensor)] = (clock, tensors)

    def arrived(self, tensor: torch.Tensor, current: Stream) -> None:
        """The current stream waits for a functional collective's result."""
        clock, _ = self._arriving.pop(storage_of(tensor), ({}, ()))
        current.follow(clock)

    @contextmanager
    def waited_for(self) -> Iterator[None]:
        """See who waits for work handles."""
        kinds: tuple[Any, ...] = (dist.Work, *dist.Work.__subclasses__())
        given = [
            (kind, name, vars(kind)[name]) for kind in kinds for name in ("wait", "synchronize") if name in vars(kind)
        ]
        for kind, name, method in given:
            setattr(kind, name, self._waiting(method))
        try:
            yield
        finally:
            for kind, name, method in given:
                setattr(kind, name, method)

    def _waiting(self, method: Any) -> Any:
        def wait(work: dist.Work, *args: Any, **kwargs: Any) -> Any:
            result = method(work, *args, **kwargs)
            current: Any = torch.cuda.current_stream()
            current.follow(host().clock)
            _, clock, _ = self._works.pop(id(work), (work, {}, ()))
            current.follow(clock)
            return result

        return wait


def storage_of(tensor: torch.Tensor) -> int:
    """Names a tensor's storage as long as it lives."""
    key: int = tensor.untyped_storage()._cdata
    return key
