"""A rank's file in memory: the param shards that this rank owns, as a safetensors file, one after the other without a gap.

The memory is allocated once and used for every checkpoint, since a rank's shards never change their place or size. On CUDA it is pinned and
filled on a stream of its own. If state is on a disk, it is on that disk, too.
"""

from collections.abc import Sequence
from typing import Final

import torch

from ...strategies.activation_memory.state_file import StateFile
from ...strategies.param_shard import ParamShard
from ...strategies.pinned_memory import CudaPinning, PinnedMemory
from . import safetensors_header
from .manifest import Tensor, TensorSlice

#: safetensors' names of types.
DTYPES: Final = {name: getattr(torch, dtype) for name, dtype in safetensors_header.DTYPES.items()}


class StagingBuffer:
    """After `take()`, `content()` is the file. `slices` and `tensors` are its entries in the manifest."""

    def __init__(self, shards: Sequence[ParamShard], device: torch.device, file: StateFile | None = None) -> None:
        """`file`: where the memory is, if not in host memory. Raises `StateDiskError` if it has no room."""
        self._shards = sorted((shard for shard in shards if shard.tensor.numel()), key=lambda p: -p.tensor.itemsize)
        begins, start = safetensors_header.header(
            (p.name, _dtype(p), tuple(p.tensor.shape), p.tensor.nbytes) for p in self._shards
        )
        self.tensors = {shard.name: Tensor(_dtype(shard), shard.shape) for shard in self._shards}
        self.slices: list[TensorSlice] = []
        cuda = device.type == "cuda"
        size = start + sum(shard.tensor.nbytes for shard in self._shards)
        self._pinned: PinnedMemory | None = None
        if file is not None:
            self._memory = file.zeros_like(torch.empty(size, dtype=torch.uint8, device="meta"))
        elif cuda:
            self._pinned = PinnedMemory(size, CudaPinning(device))
            self._memory = self._pinned.content
        else:
            self._memory = torch.empty(size, dtype=torch.uint8)
        self._memory[:start] = torch.frombuffer(bytearray(begins), dtype=torch.uint8)
        self._device, self._stream = device, torch.cuda.Stream(device) if cuda else None
        self._copied: torch.cuda.Event | None = None
        self._places: list[torch.Tensor] = []
        for shard in self._shards:
            end = start + shard.tensor.nbytes
            self._places.append(self._memory[start:end].view(shard.tensor.dtype).view(shard.tensor.shape))
            self.slices.append(TensorSlice(shard.name, shard.offset, tuple(shard.tensor.shape), start))
            start = end

    @torch.no_grad()
    def take(self) -> None:
        """Copy the shards as they are now; on CUDA, as they are after all work that is queued now."""
        if self._stream is None:
            for shard, place in zip(self._shards, self._places, strict=True):
                place.copy_(shard.tensor)
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for shard, place in zip(self._shards, self._places, strict=True):
                place.copy_(shard.tensor, non_blocking=True)
        self._copied = self._stream.record_event()

    def settle(self) -> None:
        """Make device work that is queued from now on wait for the copy. The host does not wait."""
        if self._copied is not None:
            torch.cuda.current_stream(self._device).wait_event(self._copied)

    def content(self) -> memoryview:
        """The file. Waits for the copy."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._memory.numpy().data


def _dtype(shard: ParamShard) -> str:
    return safetensors_header.dtype_name(shard.name, str(shard.tensor.dtype))
