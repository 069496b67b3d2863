"""Finds races between streams, and between streams and the host, while code runs on the fake device.

Every operator reads and writes storages on the current stream, or in this thread if all its tensors are on the host. A non-blocking copy
belongs to the stream: the host must wait for the stream before it reads what arrives. `MemoryOrder` raises `Race` for two accesses that
nothing orders. Whole storages are compared, not their parts.
"""

import sys
import threading
import weakref
from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, cast

import torch

from ...strategies.dispatch_mode import DispatchMode
from .collective_streams import CollectiveStreams, storage_of
from .fake_streams import Stream
from .fake_tensors import FakeTensor
from .host_threads import followed
from .memory_order import MemoryOrder, Place
from .operators import Accesses, Operator, accesses, operator_of, tensors_of
from .vector_clocks import Actor, host

#: The package's folder: lines in its `strategies` and `workers` are ours, and so are those of a test.
_ROOT: Final = str(Path(__file__).parents[2])
_OURS: Final = tuple(f"{_ROOT}/{folder}/" for folder in ("strategies", "workers"))
_SELF: Final = f"{_ROOT}/workers/dry_run/"


class RaceDetector:
    """Looks at all that runs inside `watching()`, on any thread that is started there. Raises `Race` where it happens."""

    def __init__(self) -> None:
        self._memory, self._collectives = MemoryOrder(), CollectiveStreams()
        self._operators: dict[Any, Operator] = {}
        self._freed: deque[Hashable] = deque()  # a storage may be freed at any line
        self._lock = threading.RLock()
        self._runs = False  # an operator, in the thread that has the lock

    @contextmanager
    def watching(self) -> Iterator["RaceDetector"]:
        with ExitStack() as stack:
            stack.enter_context(followed(lambda: _Watch(self)))
            stack.enter_context(self._collectives.waited_for())
            stack.enter_context(_replaced(torch.UntypedStorage, "resize_", self._resizing))
            stack.enter_context(_replaced(torch.Tensor, "record_stream", lambda _: self.record))
            stack.enter_context(_replaced(torch.Tensor, "numpy", self._reading))
            stack.enter_context(_replaced(FakeTensor, "tolist", self._reading))
            stack.enter_context(_Watch(self))
            yield self

    def run(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run an operator, and check what it reads and writes. One at a time: torch's FakeTensorMode has state that threads share.

        A thread that has entered the modes of another one watches twice: the inner watch has checked what comes to the outer one.
        """
        with self._lock:
            if self._runs:
                return func(*args, **kwargs)
            self._runs = True
            try:
                result = func(*args, **kwargs)
            finally:
                self._runs = False
            op = self._operators.get(func) or self._operators.setdefault(func, operator_of(func))
            if op.touches_nothing:
                return result
            if op.name == "_c10d_functional::wait_tensor":
                self._collectives.arrived(args[0], _current())
            else:
                self._check(op, args, kwargs, result)
        return result

    def _check(self, op: Operator, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        touched, returned = accesses(op, args, kwargs), list(tensors_of(result))
        everything = [*touched.reads, *touched.writes, *returned]
        on_device = any(tensor.device.type == "cuda" for tensor in everything)
        actor: Actor = _current() if on_device else host()
        if op.is_collective and on_device:
            actor = self._collectives.stream(op, args, _current())
        place = _place(op.name)
        actor.tick()
        self._note(touched, returned, actor, place, allocates_only=op.is_empty)
        if op.is_collective and isinstance(actor, Stream):
            if not op.is_waited_for:
                self._collectives.started(result, actor, everything)
        elif on_device and (op.read_by_host or _blocks(op, args, kwargs, everything)):
            host().follow(actor.clock)

    def _note(
        self, touched: Accesses, returned: Sequence[torch.Tensor], actor: Actor, place: Place, allocates_only: bool
    ) -> None:
        read = {self._key(tensor) for tensor in touched.reads}
        written = {self._key(tensor) for tensor in touched.writes}
        made = {self._key(tensor, place) for tensor in returned}
        if not allocates_only:
            written |= made  # an operator of another library may return its argument, which it wrote
        for key in read - {None}:
            self._memory.read(key, actor, place)
        for key in written - {None}:
            self._memory.write(key, actor, place)

    def host_reads(self, tensor: torch.Tensor, place: Place | None = None) -> None:
        """This thread reads a tensor by another way than an operator. If it is on the device, the host waits for the current stream."""
        with self._lock:
            actor: Actor = _current() if tensor.device.type == "cuda" else host()
            actor.tick()
            place = place or _place("read by the host")
            key = self._key(tensor)
            if key is not None:
                self._memory.read(key, actor, place)
            host().follow(actor.clock)

    def host_reads_all(self) -> None:
        """This thread lets others read all memory of the host."""
        with self._lock:
            self._memory.read_all(host(), _place("read by the host"))

    def record(self, tensor: torch.Tensor, stream: Stream) -> None:
        """`tensor.record_stream(stream)`."""
        with self._lock:
            key = self._key(tensor)
            if key is not None:
                self._memory.record(key, stream)

    def _key(self, tensor: torch.Tensor, made_at: Place | None = None) -> Hashable | None:
        """The block of a tensor; None if it has none. `made_at`: if it is new, the current stream has allocated it there."""
        self._free()
        if not tensor.numel():
            return None
        on_host = tensor.device.type == "cpu"
        fake = isinstance(tensor, FakeTensor)  # several storages of others may be of the same memory
        key: Hashable = storage_of(tensor) if fake else ("host", tensor.untyped_storage().data_ptr())
        if key not in self._memory:
            if made_at is None or on_host:
                self._memory.add(key, on_host)
            else:
                self._memory.allocate(key, _current(), made_at)
            if fake:
                weakref.finalize(tensor.untyped_storage(), self._freed.append, key)
        return key

    def _free(self) -> None:
        while self._freed:
            self._memory.free(self._freed.popleft())

    def _resizing(self, given: Any) -> Any:
        """Of parameters that FSDP2 gathers and frees: a storage of no bytes has no block."""

        def resize_(storage: torch.UntypedStorage, size: int) -> Any:
            with self._lock:
                self._free()
                if (key := storage._cdata) in self._memory and storage.nbytes() != size:
                    self._memory.free(key)
                    _current().follow(host().clock)
                    self._memory.allocate(key, _current(), _place("resize_"))
            return given(storage, size)

        return resize_

    def _reading(self, given: Any) -> Any:
        def read(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            self.host_reads(tensor)
            return given(tensor, *args, **kwargs)

        return read


class _Watch(DispatchMode):
    """Passes this thread's operators on."""

    def __init__(self, detector: RaceDetector) -> None:
        super().__init__()
        self._detector = detector

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # it comes again, as plain tensors
        return self._detector.run(func, args, kwargs or {})


@contextmanager
def _replaced(owner: type, name: str, by: Any) -> Iterator[None]:
    """Replace a method by `by(method)`. A method of a base class is put back by removing the replacement."""
    own, given = name in vars(owner), getattr(owner, name)
    replacement = by(given)
    setattr(owner, name, lambda self, *args, **kwargs: replacement(self, *args, **kwargs))  # noqa: PLW0108  (a bound method is no function of a class)
    try:
        yield
    finally:
        if own:
            setattr(owner, name, given)
        else:
            delattr(owner, name)


def _current() -> Stream:
    """The current stream, which does nothing before what this thread knows to be over."""
    stream = cast(Stream, torch.cuda.current_stream())
    stream.follow(host().clock)
    return stream


def _blocks(op: Operator, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[torch.Tensor]) -> bool:
    """Whether the host waits for a copy between host and device."""
    if op.name not in ("aten::copy_", "aten::_to_copy"):
        return False
    return len({tensor.device.type for tensor in tensors}) > 1 and not op.argument("non_blocking", args, kwargs)


def _place(operator: str) -> Place:
    """The innermost line of ours, relative to the package."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if (file.startswith(_OURS) and not file.startswith(_SELF)) or "/tests/" in file:
            return Place(operator, file.removeprefix(_ROOT + "/"), frame.f_lineno)
        frame = cast(Any, frame.f_back)
    return Place(operator, "", 0)
