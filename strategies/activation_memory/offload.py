"""Offload of activations: what a block keeps for its backward pass is on the host from soon after its forward pass to shortly before use.

Traffic: twice its bytes per micro-batch. Parameters stay on the device. The device holds at most what two blocks keep, and
in a pipeline what two more of each stage keep, whose forward pass was the last:

- Forward, block i's tensors are copied down on a side stream while block i+1 runs. They are freed before block i+2 starts, which waits
  for the copy. Without that wait the device would hold all blocks if the bus is slower than the blocks.
- Autograd saves some memory several times, as the input of several linear layers. It is copied once each way.
- Backward, block i−1's tensors are copied up on another side stream while block i runs. Tensors that are not freed yet, as those of the
  last blocks, are not copied.

What one call of a block keeps is in one piece of pinned host memory, which later calls use again (`host_pool.py`).
`host_optimizer.py` moves the optimizer, `data_parallel/fsdp.py` parameters. If the device is a CPU, the path is the same: the copy then
costs memory and frees none.
"""

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from .copy_lane import CopyLane, done_by_now, host_like
from .host_pool import HostPool, Piece
from .version_counter import version


def offload_activations(blocks: Iterable[nn.Module]) -> None:
    """Let each block keep on the host what its backward pass needs. Wraps the instance's `forward`; names and hooks do not change.

    `blocks` are those of one model part, in order.
    """
    blocks, offload = list(blocks), _Offload()
    for number, block in enumerate(blocks):
        block.forward = functools.partial(_forward, offload, number == 0, block, block.forward)


def _forward(
    offload: "_Offload", first: bool, block: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    kept, resident = offload.begin(first), _resident(block)
    with torch.autograd.graph.saved_tensors_hooks(functools.partial(_pack, kept, resident), _unpack):
        result = forward(*args, **kwargs)
    offload.end(kept)
    return result


def _resident(block: nn.Module) -> Callable[[], set[int]]:
    """The memory of the block's parameters, which ZeRO-3 gathers just before the call, and frees and gathers again by itself.

    Those of distributed experts are gathered inside it, so they are looked up whenever a tensor is saved.
    """

    def found() -> set[int]:
        return {_storage(value) for value in block.parameters()}

    if any(isinstance(module, FSDPModule) and module is not block for module in block.modules()):
        return found
    at_the_call = found()
    return lambda: at_the_call


def _storage(tensor: torch.Tensor) -> int:
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return local.untyped_storage().data_ptr()


class _Offload:
    """What the blocks of a model part share: host memory, a stream per direction, and the tensors that are still on the device."""

    def __init__(self) -> None:
        self.pool = HostPool()
        self._lanes: tuple[CopyLane, CopyLane] | None = None
        self.leaving: list[_Kept] = []  # of blocks whose tensors are copied down, and not freed yet; at most two
        self._newest: Callable[[], _Kept | None] = lambda: None

    def lanes(self, device: torch.device) -> tuple[CopyLane, CopyLane]:
        """The lanes down and up."""
        self._lanes = self._lanes or (CopyLane(device), CopyLane(device))
        return self._lanes

    def begin(self, first: bool) -> "_Kept":
        """A block begins its forward pass. `first`: of its part, in a new micro-batch."""
        while len(self.leaving) > 1:
            self.leaving.pop(0).free()
        before, kept = self._newest() if not first else None, _Kept(self)
        kept.before = weakref.ref(before) if before is not None else lambda: None
        return kept

    def end(self, kept: "_Kept") -> None:
        """The block has run."""
        self._newest = weakref.ref(kept)
        if kept.tensors:
            self.leaving.append(kept)
            kept.copy_down()

    def stay(self, kept: "_Kept") -> None:
        """The backward pass uses what is still on the device."""
        if kept in self.leaving:
            self.leaving.remove(kept)
            kept.check()


class _Kept:
    """What one call of a block keeps: each tensor on the host, and on the device while it is needed there.

    The graph holds it; so `before`, the block before in the same pass, is a weak reference.
    """

    def __init__(self, offload: _Offload) -> None:
        self._offload = offload
        self.before: Callable[[], _Kept | None] = lambda: None
        self.tensors: list[torch.Tensor | None] = []  # on the device
        self._hosts: list[torch.Tensor] = []
        self._versions: list[int] = []
        self._users: list[int] = []  # those that have not taken the tensor yet
        self._numbers: dict[_Memory, int] = {}
        self._device = torch.device("cpu")
        self._piece: Piece  # has the hosts, and the end of the last copies in one direction
        self._freed = self._used = False

    def add(self, tensor: torch.Tensor) -> int:
        """Keep a tensor, unless one of the same memory is kept. Returns its number."""
        memory = _memory(tensor)
        number = (
            self._numbers.get(memory) if memory[0] else None
        )  # without elements, or without values, it has no address
        if number is not None and self._has(number, memory):
            self._users[number] += 1
            return number
        self._numbers[memory] = len(self.tensors)
        self.tensors.append(tensor)
        self._versions.append(version(tensor))
        self._users.append(1)
        return len(self.tensors) - 1

    def _has(self, number: int, memory: "_Memory") -> bool:
        """Whether that tensor is still of this memory: a storage that was freed may have left its address to another."""
        kept = self.tensors[number]
        return kept is not None and _memory(kept) == memory

    def _lanes(self) -> tuple[CopyLane, CopyLane]:
        return self._offload.lanes(self._device)

    def copy_down(self) -> None:
        """Start to copy all to the host. Nothing is added from now on."""
        self.check()
        self._numbers.clear()
        found = [tensor for tensor in self.tensors if tensor is not None]
        self._device = found[0].device
        self._piece = self._offload.pool.take(max(1, sum(map(_room, found))), self._device)
        weakref.finalize(self, self._offload.pool.give, self._piece).atexit = False
        self._hosts = list(_places(found, self._piece.content))
        down, _ = self._lanes()
        down.after_current()
        self._piece.done = down.run(lambda: _copy(found, self._hosts))

    def free(self) -> None:
        """Free the device's memory, whose next use comes after the copy."""
        self.check()
        self._piece.done.wait_on_device()
        self.tensors, self._freed = [None] * len(self._hosts), True

    def check(self) -> None:
        """Torch checks this only for tensors that it keeps itself. Raises `RuntimeError`."""
        for tensor, before in zip(self.tensors, self._versions, strict=True):
            if tensor is None:
                continue
            gone = tensor.numel() > 0 and not tensor.untyped_storage().nbytes()
            if gone or version(tensor) != before:
                what = "freed" if gone else "changed in place"
                raise RuntimeError(
                    f"A tensor that a block keeps for its backward pass was {what}. Change a copy of it."
                )

    def fetch(self) -> None:
        """Start to copy all to the device, if it is not there."""
        if not self._freed:
            return
        self._freed = False
        found = [torch.empty_like(host, device=self._device) for host in self._hosts]
        _, up = self._lanes()
        up.after_current()  # the memory may be that of tensors that it still reads
        self._piece.done = up.run(lambda: _copy(self._hosts, found))
        self.tensors = list(found)

    def take(self, number: int) -> torch.Tensor:
        """The tensor on the device, until its last user has it. At the first one, the block before starts to fetch its own."""
        if not self._used:
            self._used = True
            self._offload.stay(self)
            self.fetch()
            self._piece.done.wait_on_device()  # also for a copy down: its tensors are freed after their use
            before = self.before()
            if before is not None:
                before.fetch()
        tensor = self.tensors[number]
        self._users[number] -= 1
        if self._users[number] < 1:
            self.tensors[number] = None
        if tensor is not None:
            return tensor
        # Used before: a schedule that splits the backward pass runs it twice. On a CPU, too, the piece has another content later.
        again = self._hosts[number].to(self._device, non_blocking=True, copy=True)
        self._piece.done = done_by_now(self._device)
        return again


#: Storage, first element, sizes, strides, dtype, and version.
_Memory = tuple[int, int, torch.Size, tuple[int, ...], torch.dtype, int]


def _memory(tensor: torch.Tensor) -> _Memory:
    """What memory the tensor shows, and after how many changes in place."""
    offset = int(tensor.storage_offset())
    return (_storage(tensor), offset, tensor.shape, tensor.stride(), tensor.dtype, version(tensor))


def _in_a_row(tensor: torch.Tensor) -> torch.Tensor | None:
    """The elements [n] in the order of memory; None if they do not fill it without gaps, or it has no address."""
    filled = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != filled:
            return None
        filled *= size
    return tensor.as_strided((filled,), (1,)) if _storage(tensor) else None


#: Tensors in a piece begin at multiples of this many bytes.
_ALIGNED: Final = 512


def _room(tensor: torch.Tensor) -> int:
    """The bytes that a tensor takes in a piece; none if it has no address, as of a subclass that is made of several."""
    return -(-tensor.nbytes // _ALIGNED) * _ALIGNED if _storage(tensor) else 0


def _places(tensors: list[torch.Tensor], content: torch.Tensor) -> Iterator[torch.Tensor]:
    """Memory on the host for a copy of each tensor, in the order of its elements: in `content` if it takes room there."""
    start = 0
    for tensor in tensors:
        if room := _room(tensor):
            like = torch.empty_like(tensor, device="meta")
            place = content[start : start + tensor.nbytes].view(tensor.dtype)
            yield place.as_strided(like.shape, like.stride(), place.storage_offset())
            start += room
        else:
            yield host_like(tensor)


def _copy(sources: list[torch.Tensor], targets: list[torch.Tensor]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target.copy_(source, non_blocking=True)


@dataclass(frozen=True, eq=False)
class _Packed:
    """A tensor that autograd saved: number `number` of what `kept` keeps.

    `layout`: its sizes and strides, if its elements are kept in a row. `spec`: how a DTensor is made of it.
    """

    kept: _Kept
    number: int
    layout: tuple[torch.Size, tuple[int, ...]] | None
    spec: tuple[Any, ...] | None


def _pack(kept: _Kept, resident: Callable[[], set[int]], tensor: torch.Tensor) -> Any:
    """What autograd saves instead of the tensor. Parameters and scalars are returned unchanged."""
    with torch.no_grad():
        if not tensor.dim() or _storage(tensor) in resident():
            return tensor
        spec, plain = None, tensor
        if isinstance(tensor, DTensor):
            spec, plain = (tensor.device_mesh, tensor.placements, tensor.shape, tensor.stride()), tensor.to_local()
        plain = plain.detach()
        row = _in_a_row(plain)
        if row is None:
            return _Packed(kept, kept.add(plain), None, spec)
        return _Packed(kept, kept.add(row), (plain.shape, plain.stride()), spec)


def _unpack(packed: Any) -> torch.Tensor:
    if isinstance(packed, torch.Tensor):
        return packed
    with torch.no_grad():
        plain: torch.Tensor = packed.kept.take(packed.number)
        if packed.layout is not None:
            plain = plain.as_strided(*packed.layout)
    if packed.spec is None:
        return plain
    mesh, placements, shape, stride = packed.spec
    return DTensor.from_local(plain, mesh, placements, run_check=False, shape=shape, stride=stride)
