"""Stand-ins for what torch asks a CUDA driver in Python: streams, events and the device's properties. Nothing ever waits.

Streams and events keep vector clocks, by which `race_detector.py` finds what is ordered by luck only.

They replace attributes of torch in this process, whose only work is one dry run. Each replaced name is one that the strategies, FSDP2
or the pipeline schedules use.
"""

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch.distributed.device_mesh import DeviceMesh

from ...strategies import pinned_memory
from .fake_tensors import unset_fake_temporarily
from .vector_clocks import Actor, host

DEVICE = torch.device("cuda", 0)

#: Methods of DeviceMesh that read the values of tensors of ranks, which must not be fake.
_MESH_METHODS = (
    "__init__",
    "__getitem__",
    "_concatenate",
    "_get_slice_mesh_layout",
    "_create_sub_mesh",
    "_compute_coordinates_from_mesh",
    "_get_root_mesh",
    "get_coordinate",
)


class Stream(Actor):
    """A stream of the fake device. What it is given runs after what the giving thread knows to be over."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:  # noqa: ARG002  (torch's signature)
        super().__init__(f"stream {id(self):x}")
        self.device, self.device_index, self.cuda_stream = DEVICE, 0, id(self)

    def wait_stream(self, other: "Stream") -> None:
        self.wait_event(other.record_event())

    def wait_event(self, event: "Event") -> None:
        self.follow(host().clock)
        self.follow(event.clock)

    def record_event(self, event: "Event | None" = None) -> "Event":
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self) -> None:
        host().follow(self.clock)

    def query(self) -> bool:
        host().follow(self.clock)
        return True

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None: ...


class Event:
    """An event of the fake device. To a caller it has always happened."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.clock: dict[Actor, int] = {}

    def record(self, stream: Stream | None = None) -> None:
        stream = stream or _current_stream()
        stream.follow(host().clock)
        stream.tick()  # an action of its own: it is over only for who waits for it, or for what comes after it
        self.clock = dict(stream.clock)

    def wait(self, stream: Stream | None = None) -> None:
        (stream or _current_stream()).wait_event(self)

    def synchronize(self) -> None:
        host().follow(self.clock)

    def query(self) -> bool:
        host().follow(self.clock)
        return True

    def elapsed_time(self, other: "Event") -> float:  # noqa: ARG002
        """Milliseconds."""
        return 1.0


def _current_stream() -> Stream:
    return cast(Stream, torch.cuda.current_stream())  # `install` replaced it


class _Streams:
    """The default stream, and the current one of each thread."""

    def __init__(self) -> None:
        self.default = Stream()
        self.default.name = "the default stream"
        self._of_thread = threading.local()

    def current(self, device: Any = None) -> Stream:  # noqa: ARG002
        stream: Stream = getattr(self._of_thread, "stream", self.default)
        return stream

    @contextmanager
    def use(self, stream: Stream | None) -> Iterator[None]:
        before, self._of_thread.stream = self.current(), stream or self.current()
        try:
            yield
        finally:
            self._of_thread.stream = before

    def synchronize(self, device: Any = None) -> None:  # noqa: ARG002
        """The host waits for the default stream and this thread's. Others do not count: that is stricter than CUDA."""
        host().follow(self.default.clock)
        host().follow(self.current().clock)


class _Pageable:
    """Host memory in place of pinned memory; fake if tensors are."""

    def __init__(self, size: int, _: pinned_memory.Pinning) -> None:
        self.content = torch.empty(size, dtype=torch.uint8)


def install() -> None:
    """Replace torch's attributes, and what calls its runtime. Once per process; `answer_as` says which device it is."""
    streams = _Streams()
    cuda: Any = torch.cuda
    cuda.Stream, cuda.Event = Stream, Event
    cuda.stream = cuda.StreamContext = streams.use
    cuda.current_stream, cuda.default_stream = streams.current, lambda device=None: streams.default  # noqa: ARG005
    cuda.current_device = lambda: 0
    cuda.device_count = lambda: 1
    cuda.is_initialized = lambda: True  # not `is_available`: fake tensors would then use a driver
    cuda.set_device = lambda device=None: None  # noqa: ARG005
    cuda.synchronize = streams.synchronize
    cuda.manual_seed_all = lambda seed: None  # noqa: ARG005
    cuda.get_rng_state = lambda device=None: torch.zeros(16, dtype=torch.uint8)  # noqa: ARG005
    cuda.set_rng_state = lambda state, device=None: None  # noqa: ARG005
    accelerator: Any = torch.accelerator
    accelerator.current_stream = streams.current
    tensor: Any = torch.Tensor
    tensor.record_stream = lambda self, stream: None  # noqa: ARG005
    tensor.pin_memory = lambda self, device=None: self  # noqa: ARG005
    cast(Any, pinned_memory).PinnedMemory = _Pageable
    _name_memory()
    _keep_meshes_real()


def answer_as(name: str, capability: tuple[int, int]) -> None:
    """Answer as a device of this `name` and compute `capability` would."""
    cuda: Any = torch.cuda
    cuda.get_device_capability = lambda device=None: capability  # noqa: ARG005
    cuda.get_device_name = lambda device=None: name  # noqa: ARG005


def _name_memory() -> None:
    """Let storages without memory have an address all the same: code compares addresses to find tensors of the same memory."""
    storage: Any = torch.UntypedStorage
    given = storage.data_ptr
    storage.data_ptr = lambda self: self._cdata if self.device.type in ("meta", "cuda") else given(self)


def _keep_meshes_real() -> None:
    cast(Any, DeviceMesh).mesh = property(_real(vars(DeviceMesh)["mesh"].fget))
    for name in _MESH_METHODS:
        given = vars(DeviceMesh).get(name)
        if given is None:
            continue
        static = isinstance(given, staticmethod | classmethod)
        setattr(DeviceMesh, name, type(given)(_real(given.__func__)) if static else _real(given))


def _real(method: Any) -> Any:
    @functools.wraps(method)
    def outside_fake_mode(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily():
            return method(*args, **kwargs)

    return outside_fake_mode
