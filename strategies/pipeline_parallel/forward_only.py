"""Forward passes through a pipeline: each stage takes its micro-batches in order and passes them on.

The naive twin of a schedule, used for validation: torch's ZBV and DualPipeV cannot run without a backward pass (`can't
steal_bwd_input if this stage doesn't have backward`, torch 2.13).
"""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import nn

from ..mesh import Mesh


class ForwardOnly:
    """The stages of this rank and the ranks of the neighbouring stages. Works for any map of stages to ranks."""

    def __init__(self, parts: Sequence[nn.Module], mesh: Mesh, microbatches: int) -> None:
        layout = mesh.layout
        self._mine = dict(zip(layout.stages_of(mesh.index("pipeline")), parts, strict=True))
        owners = {stage: rank for rank in range(layout.pipeline) for stage in layout.stages_of(rank)}
        self._rank, self._owners, self._last = mesh.index("pipeline"), owners, layout.stages - 1
        self._group, self._device, self._microbatches = mesh.group("pipeline"), mesh.device, microbatches
        self._sent: list[tuple[dist.Work | None, torch.Tensor]] = []

    def run(self, inputs: torch.Tensor, finish: Callable[[int, torch.Tensor], None]) -> None:
        """Push `inputs` [micro-batches × micro-batch, seq] through; `finish(number, output)` is called on the last stage's rank."""
        waiting: dict[int, list[torch.Tensor]] = {0: list(inputs.chunk(self._microbatches))}
        for stage, part in sorted(self._mine.items()):
            given = waiting.pop(stage, None)
            for number in range(self._microbatches):
                output = part(given[number] if given is not None else self._receive(stage - 1))
                if stage == self._last:
                    finish(number, output)
                elif self._owners[stage + 1] == self._rank:
                    waiting.setdefault(stage + 1, []).append(output)
                else:
                    self._send(output, stage + 1)
        for work, _ in self._sent:
            assert work is not None
            work.wait()
        self._sent.clear()

    def _send(self, tensor: torch.Tensor, stage: int) -> None:
        """Send a header of three sizes and the dtype, then [batch, seq, dim]. Sent tensors are kept until they have left."""
        header = torch.tensor([*tensor.shape, _DTYPES.index(tensor.dtype)], device=self._device)
        for message in (header, tensor.contiguous()):
            work = dist.isend(message, group=self._group, group_dst=self._owners[stage])
            self._sent.append((work, message))

    def _receive(self, stage: int) -> torch.Tensor:
        header = torch.empty(4, dtype=torch.int64, device=self._device)
        dist.recv(header, group=self._group, group_src=self._owners[stage])
        *shape, dtype = header.tolist()
        tensor = torch.empty(shape, dtype=_DTYPES[dtype], device=self._device)
        dist.recv(tensor, group=self._group, group_src=self._owners[stage])
        return tensor


_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
