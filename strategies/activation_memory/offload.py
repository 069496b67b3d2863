"""Offload: what lies in the host's memory instead of the device's (ZeRO-Offload, 2101.06840).

Optimizer: a share r of the pieces' elements P has its state and its step on the host: 8·r·P bytes of AdamW's moments leave the device,
which keeps the pieces themselves; per step 4·r·P bytes of gradients and 4·r·P of values come and 4·r·P go, in chunks. Activations: what
a block keeps for its backward pass is moved during its forward pass and fetched when needed, twice its bytes per micro-batch; parameters
stay. Parameters: see `fsdp.py`. The path is the same where the device is a CPU: there a copy costs memory and gains none.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from ..param_shard import Piece

CHUNK_BYTES = 64 << 20
HOST = torch.device("cpu")


class HostOptimizer(Optimizer):
    """An optimizer over `pieces` of which a `share` (0 to 1, of the elements) is updated on the host.

    `make` gives the optimizer of some pieces. What others read stays as they know it: `state` by piece, `param_groups` of all.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        share: float,
        make: Callable[[Sequence[Piece]], Optimizer],
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        moved = pick(pieces, share)
        stay = [piece for number, piece in enumerate(pieces) if number not in moved]
        self._resident = make(stay) if stay else None
        self._chunks = [_Chunk(part, make) for part in _chunks([pieces[n] for n in sorted(moved)], chunk_bytes)]
        inner = [*([self._resident] if self._resident else []), *(chunk.optimizer for chunk in self._chunks)]
        super().__init__([group for optimizer in inner for group in optimizer.param_groups], {})
        for piece in stay:
            assert self._resident is not None
            self.state[piece.tensor] = self._resident.state[piece.tensor]
        for chunk in self._chunks:
            for piece, host in zip(chunk.pieces, chunk.hosts, strict=True):
                self.state[piece.tensor] = chunk.optimizer.state[host]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all pieces from their gradients."""
        assert closure is None
        if self._resident is not None:
            self._resident.step()
        for chunk in self._chunks:
            chunk.step()


class _Chunk:
    """Some pieces with their twins on the host. The piece is what counts (a checkpoint fills it): its twin is filled anew each step."""

    def __init__(self, pieces: Sequence[Piece], make: Callable[[Sequence[Piece]], Optimizer]) -> None:
        self.pieces = list(pieces)
        self.hosts = [_twin(piece.tensor) for piece in pieces]
        self._gradients = [_twin(piece.tensor) for piece in pieces]
        self.optimizer = make([piece.like(piece.name, host) for piece, host in zip(pieces, self.hosts, strict=True)])

    def step(self) -> None:
        for piece, host, gradient in zip(self.pieces, self.hosts, self._gradients, strict=True):
            host.copy_(piece.tensor, non_blocking=True)
            if piece.tensor.grad is not None:
                gradient.copy_(piece.tensor.grad, non_blocking=True)
                host.grad = gradient
        if self.pieces[0].tensor.is_cuda:
            torch.cuda.current_stream().synchronize()
        self.optimizer.step()
        for piece, host in zip(self.pieces, self.hosts, strict=True):
            piece.tensor.copy_(host, non_blocking=True)
            host.grad = None


def _twin(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same shape and dtype on the host; pinned where that speeds up copies."""
    return torch.empty_like(tensor, device=HOST, pin_memory=tensor.is_cuda, requires_grad=False)


def pick(pieces: Sequence[Piece], share: float) -> set[int]:
    """Numbers of the pieces that go to the host: in order, as many as fit in `share` of all elements."""
    room = share * sum(piece.tensor.numel() for piece in pieces)
    picked = set()
    for number, piece in enumerate(pieces):
        if piece.tensor.numel() <= room:
            picked.add(number)
            room -= piece.tensor.numel()
    return picked


def _chunks(pieces: Sequence[Piece], limit: int) -> list[list[Piece]]:
    chunks: list[list[Piece]] = []
    room = 0
    for piece in pieces:
        if not chunks or piece.tensor.nbytes > room:
            chunks.append([])
            room = limit
        chunks[-1].append(piece)
        room -= piece.tensor.nbytes
    return chunks


def offload_activations(blocks: Iterable[nn.Module]) -> None:
    """Let every block keep what its backward pass needs on the host. The instance's `forward` is wrapped; names and hooks stay."""
    for block in blocks:
        block.forward = functools.partial(_forward, block, block.forward)


def _forward(block: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    # Asked at each call: ZeRO-3 puts gathered parameters in place just before.
    resident = {_storage(value) for value in block.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(functools.partial(_pack, resident), _unpack):
        return forward(*args, **kwargs)


def _storage(tensor: torch.Tensor) -> int:
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return local.untyped_storage().data_ptr()


def _pack(resident: set[int], tensor: torch.Tensor) -> Any:
    """A tensor on the host and how to bring it back; parameters and single numbers as they are."""
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
