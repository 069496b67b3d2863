"""Stand-ins for what torch asks a CUDA driver in Python: streams, events and the device's properties. Nothing ever waits.

They replace attributes of torch in this process, whose only work is one dry run. Each replaced name is one that the strategies, FSDP2
or the pipeline schedules use.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch.distributed.device_mesh import DeviceMesh

from .fake_tensors import unset_fake_temporarily

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


class Stream:
    """A stream of the fake device."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:  # noqa: ARG002  (torch's signature)
        self.device, self.device_index, self.cuda_stream = DEVICE, 0, id(self)

    def wait_stream(self, other: "Stream") -> None: ...

    def wait_event(self, event: "Event") -> None: ...

    def record_event(self, event: "Event | None" = None) -> "Event":
        return event or Event()

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None: ...


class Event:
    """An event of the fake device: it has always happened."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, stream: Stream | None = None) -> None: ...

    def wait(self, stream: Stream | None = None) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: "Event") -> float:  # noqa: ARG002
        """Milliseconds."""
        return 1.0


@contextmanager
def _stream(_: Any) -> Iterator[None]:
    yield


def install() -> None:
    """Replace torch's attributes. Once per process; `answer_as` says which device it is."""
    default = Stream()
    cuda: Any = torch.cuda
    cuda.Stream, cuda.Event = Stream, Event
    cuda.stream = cuda.StreamContext = _stream
    cuda.current_stream = cuda.default_stream = lambda device=None: default  # noqa: ARG005
    cuda.current_device = lambda: 0
    cuda.device_count = lambda: 1
    cuda.is_initialized = lambda: True  # not `is_available`: fake tensors would then use a driver
    cuda.set_device = cuda.synchronize = lambda device=None: None  # noqa: ARG005
    cuda.manual_seed_all = lambda seed: None  # noqa: ARG005
    cuda.get_rng_state = lambda device=None: torch.zeros(16, dtype=torch.uint8)  # noqa: ARG005
    cuda.set_rng_state = lambda state, device=None: None  # noqa: ARG005
    accelerator: Any = torch.accelerator
    accelerator.current_stream = lambda device=None: default  # noqa: ARG005
    tensor: Any = torch.Tensor
    tensor.record_stream = lambda self, stream: None  # noqa: ARG005
    tensor.pin_memory = lambda self, device=None: self  # noqa: ARG005
    _keep_meshes_real()


def answer_as(name: str, capability: tuple[int, int]) -> None:
    """Answer as a device of this `name` and compute `capability` would."""
    cuda: Any = torch.cuda
    cuda.get_device_capability = lambda device=None: capability  # noqa: ARG005
    cuda.get_device_name = lambda device=None: name  # noqa: ARG005


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
