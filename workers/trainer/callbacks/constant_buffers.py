"""Refuses persistent buffers that training changes, in a module of the user's own: no checkpoint has them, and each replica its own.

A table that the factory computes, such as rotations or a mask, is constant and needs no checkpoint. A running mean, a queue or a codebook
is not: a job that resumes would begin with the factory's value again. What the first step sets is still constant, as a table that is
computed when it is first needed. So each later step is compared with the first, and replicas after the first: what they set must not
depend on their data.

A step costs a look at each buffer. Its numbers are read after the first two steps of this process, and later only if it was written, or is
another tensor.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from ....strategies.activation_memory.version_counter import version
from ....strategies.layout import Refusal, own_clocks
from ....strategies.mesh import REPLICA
from ....strategies.replica_checksum import checksum, differs
from ..build import TrainerParts
from ..step_record import StepRecord
from .base import Callback


@dataclass(frozen=True)
class _Seen:
    """A buffer after a step: the tensor, how often it was written by then, and the sum of its words."""

    tensor: torch.Tensor
    version: int
    sum: torch.Tensor

    @classmethod
    def now(cls, tensor: torch.Tensor) -> "_Seen":
        return cls(tensor, version(tensor), checksum(_local(tensor)))

    def is_untouched(self, tensor: torch.Tensor) -> bool:
        return tensor is self.tensor and version(tensor) == self.version

    def equals(self, other: "_Seen") -> bool:
        """Whether both have the same bits; with near certainty, as sums are compared."""
        kinds = [(one.tensor.shape, one.tensor.dtype, one.tensor.device) for one in (self, other)]
        return kinds[0] == kinds[1] and torch.equal(self.sum, other.sum)


class ConstantBuffers(Callback):
    """Compares the persistent buffers of the user's own module after each step with those after the first one of this process."""

    def __init__(self, parts: TrainerParts) -> None:
        own = parts.parallel.parts if parts.architecture is None else ()
        self._places = [place for part in own for place in _persistent(part)]
        self._mesh = parts.mesh
        self._seen: dict[str, _Seen] | None = None
        self._compared = False

    def after_step(self, record: StepRecord) -> None:
        """Raises `Refusal` on the ranks whose buffers have changed, or on all replicas if theirs differ after the first step."""
        if self._seen is None:
            self._seen = {name: _Seen.now(tensor) for name, tensor in self._buffers()}
            self._refuse_unlike(self._seen, record.step)
            return
        # The first time all are read: what `.data` writes, and torch's running statistics, count as no version.
        trusted, self._compared = self._compared, True
        for name, tensor in self._buffers():
            seen = self._seen.get(name)
            if trusted and seen is not None and seen.is_untouched(tensor):
                continue
            now = _Seen.now(tensor)
            if seen is not None and not now.equals(seen):
                raise _varies(name, f"has changed in step {record.step}")
            self._seen[name] = now

    def _refuse_unlike(self, seen: Mapping[str, _Seen], step: int) -> None:
        """Raise `Refusal`, on all replicas, for a buffer of which they have different values."""
        mesh = self._mesh
        # Ranks of one sequence may have tables of their own positions, and workers with clocks of their own do not meet here.
        if not self._places or mesh.size(REPLICA) == 1 or mesh.size("context") > 1 or own_clocks(mesh.layout):
            return
        none = torch.zeros((), dtype=torch.int64)
        names = [name for name, _, _ in self._places]  # as many on all replicas, also where one has no values
        sums = torch.stack([(seen[name].sum if name in seen else none).to(mesh.device) for name in names])
        for name, unlike in zip(names, differs(sums, mesh.group(REPLICA)).tolist(), strict=True):
            if unlike:
                raise _varies(name, f"differs between replicas after step {step}")

    def _buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Those that have values by now."""
        for name, owner, key in self._places:
            tensor = getattr(owner, key, None)
            if isinstance(tensor, torch.Tensor) and _local(tensor).layout == torch.strided:
                yield name, tensor


def _persistent(part: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    """Name, module and attribute of each buffer that `state_dict` has."""
    saved = nn.Module.state_dict(part, keep_vars=True)  # the user's module may have one of its own
    for prefix, module in part.named_modules():
        for key, _ in module.named_buffers(recurse=False):
            name = f"{prefix}.{key}" if prefix else key
            if name in saved:
                yield name, module, key


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _varies(name: str, how: str) -> Refusal:
    return Refusal(
        "model.import",
        f"the buffer {name} {how}, and checkpoints have parameters alone: a job that resumes would begin with the "
        "factory's value, and each replica has a value of its own.",
        "Compute it from parameters, or register it with persistent=False if a job that resumes may begin with the factory's value.",
    )
