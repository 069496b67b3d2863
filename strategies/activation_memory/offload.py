"""Offload: keeps optimizer state, activations or parameters in host memory instead of device memory (ZeRO-Offload, 2101.06840).

Optimizer: for a share r of the P elements, state and step are on the host. 8·r·P bytes of AdamW's moments leave the device, which
keeps the param shards themselves. Per step, 4·r·P bytes of gradients and 4·r·P of values are copied to the host and 4·r·P back, in
chunks.

Activations: what a block keeps for its backward pass is moved to the host during its forward pass and fetched when needed: twice
its bytes per micro-batch. Parameters stay on the device.

Parameters: see `fsdp.py`.

If the device is a CPU, the path is the same: the copy then costs memory and frees none.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from ..param_shard import ParamShard

CHUNK_BYTES = 64 << 20
HOST = torch.device("cpu")


class HostOptimizer(Optimizer):
    """An optimizer over `shards` that updates a `share` (0 to 1, of the elements) of them on the host.

    `make` returns the optimizer for a list of param shards. The attributes that other code reads keep their meaning: `state` by
    shard, `param_groups` of all.
    """

    def __init__(
        self,
        shards: Sequence[ParamShard],
        share: float,
        make: Callable[[Sequence[ParamShard]], Optimizer],
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        moved = pick(shards, share)
        stay = [shard for number, shard in enumerate(shards) if number not in moved]
        self._resident = make(stay) if stay else None
        self._chunks = [_Chunk(part, make) for part in _chunks([shards[n] for n in sorted(moved)], chunk_bytes)]
        inner = [*([self._resident] if self._resident else []), *(chunk.optimizer for chunk in self._chunks)]
        super().__init__([group for optimizer in inner for group in optimizer.param_groups], {})
        for shard in stay:
            assert self._resident is not None
            self.state[shard.tensor] = self._resident.state[shard.tensor]
        for chunk in self._chunks:
            for shard, host in zip(chunk.shards, chunk.hosts, strict=True):
                self.state[shard.tensor] = chunk.optimizer.state[host]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all pieces from their gradients."""
        assert closure is None
        if self._resident is not None:
            self._resident.step()
        for chunk in self._chunks:
            chunk.step()


class _Chunk:
    """Some param shards with their copies on the host.

    The device's shard is authoritative (a checkpoint fills it): each step refills the copy.
    """

    def __init__(self, shards: Sequence[ParamShard], make: Callable[[Sequence[ParamShard]], Optimizer]) -> None:
        self.shards = list(shards)
        self.hosts = [_twin(shard.tensor) for shard in shards]
        self._gradients = [_twin(shard.tensor) for shard in shards]
        self.optimizer = make([shard.like(shard.name, host) for shard, host in zip(shards, self.hosts, strict=True)])

    def step(self) -> None:
        for shard, host, gradient in zip(self.shards, self.hosts, self._gradients, strict=True):
            host.copy_(shard.tensor, non_blocking=True)
            if shard.tensor.grad is not None:
                gradient.copy_(shard.tensor.grad, non_blocking=True)
                host.grad = gradient
        if self.shards[0].tensor.is_cuda:
            torch.cuda.current_stream().synchronize()
        self.optimizer.step()
        for shard, host in zip(self.shards, self.hosts, strict=True):
            shard.tensor.copy_(host, non_blocking=True)
            host.grad = None


def _twin(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same shape and dtype on the host; pinned if that speeds up copies."""
    return torch.empty_like(tensor, device=HOST, pin_memory=tensor.is_cuda, requires_grad=False)


def pick(shards: Sequence[ParamShard], share: float) -> set[int]:
    """Indices of the param shards that go to the host: in order, as many as fit in `share` of all elements."""
    room = share * sum(shard.tensor.numel() for shard in shards)
    picked = set()
    for number, shard in enumerate(shards):
        if shard.tensor.numel() <= room:
            picked.add(number)
            room -= shard.tensor.numel()
    return picked


def _chunks(shards: Sequence[ParamShard], limit: int) -> list[list[ParamShard]]:
    chunks: list[list[ParamShard]] = []
    room = 0
    for shard in shards:
        if not chunks or shard.tensor.nbytes > room:
            chunks.append([])
            room = limit
        chunks[-1].append(shard)
        room -= shard.tensor.nbytes
    return chunks


def offload_activations(blocks: Iterable[nn.Module]) -> None:
    """Let each block keep on the host what its backward pass needs. Wraps the instance's `forward`; names and hooks do not change."""
    for block in blocks:
        block.forward = functools.partial(_forward, block, block.forward)


def _forward(block: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    # Evaluated at each call: ZeRO-3 puts gathered parameters in place just before it.
    resident = {_storage(value) for value in block.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(functools.partial(_pack, resident), _unpack):
        return forward(*args, **kwargs)


def _storage(tensor: torch.Tensor) -> int:
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return local.untyped_storage().data_ptr()


def _pack(resident: set[int], tensor: torch.Tensor) -> Any:
    """The tensor on the host and how to bring it back. Parameters and scalars are returned unchanged."""
    with torch.no_grad():
        if not tensor.dim() or _storage(tensor) in resident:
            return tensor
        plain = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        host = torch.empty_like(plain, device=HOST, pin_memory=plain.is_cuda)
        host.copy_(plain)
        if not isinstance(tensor, DTensor):
            return host, tensor.device, None
        return host, plain.device, (tensor.device_mesh, tensor.placements, tensor.shape, tensor.stride())


def _unpack(packed: Any) -> torch.Tensor:
    if isinstance(packed, torch.Tensor):
        return packed
    host, device, spec = packed
    plain: torch.Tensor = host.to(device, non_blocking=True)
    if spec is None:
        return plain
    mesh, placements, shape, stride = spec
    return DTensor.from_local(plain, mesh, placements, run_check=False, shape=shape, stride=stride)
