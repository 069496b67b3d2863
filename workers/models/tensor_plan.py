"""The plan that shards a decoder over the tensor axis, as data: module pattern → parallel style.

The plan covers every parameter, so that all of them become DTensors; clipping and fused optimizers refuse a mixture. Column then
row (Megatron-LM, 1909.08053); with sequence parallelism (2205.05198) norms and residuals are sharded by position.
`strategies/tensor_parallel/linear.py` documents what is sent and kept.
"""

import functools
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle

from ...strategies.param_shard import DimShard, shard_manually
from ...strategies.telemetry.current import wait_on
from ...strategies.tensor_parallel.apply import ChunkedStyle
from ...strategies.tensor_parallel.linear import ShardedColumns, local, own_part, shard_row, sharded_lookup
from ...strategies.tensor_parallel.tensor_axis import Axis


class NormParallel(ParallelStyle):
    """A norm (`norms.py`). With `parts` each rank norms other tokens or heads than its peers: a parameter's gradient is part of a sum."""

    def __init__(self, *, parts: bool) -> None:
        super().__init__()
        self.parts = parts

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        for name, parameter in list(module.named_parameters(recurse=False)):
            whole = distribute_tensor(parameter, device_mesh, [Replicate()], src_data_rank=self.src_data_rank)
            module.register_parameter(name, nn.Parameter(whole, parameter.requires_grad))
        module.own = functools.partial(local, partial=self.parts)  # type: ignore[assignment]
        return module


class ShardedLinear(ParallelStyle):
    """A linear layer's parameters sharded over dim 0 (`Shard(0)`: columns of the output) or 1 (rows).

    Another style replaces its forward pass.
    """

    def __init__(self, cut: Shard) -> None:
        super().__init__()
        self.cut = cut

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        for name, parameter in list(module.named_parameters(recurse=False)):
            placement: Placement = self.cut if self.cut.dim < parameter.dim() else Replicate()  # a row's bias is whole
            cut = distribute_tensor(parameter, device_mesh, [placement], src_data_rank=self.src_data_rank)
            module.register_parameter(name, nn.Parameter(cut, parameter.requires_grad))
        return module


class ColumnsParallel(ChunkedStyle):
    """A module that calls its column-sharded layers through `columns`: one exchange serves all of them (`tensor_parallel/linear.py`)."""

    def __init__(self, sequence: bool) -> None:
        super().__init__()
        self.sequence = sequence

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        module.columns = ShardedColumns(device_mesh, self.sequence, self.chunks)  # type: ignore[assignment]
        return module


class RowParallel(ShardedLinear, ChunkedStyle):
    """A linear layer sharded by rows, of an input whose last dim is sharded. The output is whole, or this rank's part of dim 1."""

    def __init__(self, sequence: bool) -> None:
        super().__init__(Shard(1))
        self.sequence = sequence

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        super()._apply(module, device_mesh)
        axis = Axis(device_mesh, self.sequence, self.chunks)
        shard_row(cast(nn.Linear, module), axis)
        return module


class PartLinear(ShardedLinear):
    """A linear layer sharded by columns or rows inside a module that gathers its input and sums its output itself."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        super()._apply(module, device_mesh)
        module.forward = functools.partial(own_part, cast(nn.Linear, module))
        return module


class HeadParallel(ShardedLinear):
    """A linear layer sharded by columns. Its output, the logits, is a DTensor sharded by vocabulary: the loss never makes it whole."""

    def __init__(self, sequence: bool) -> None:
        super().__init__(Shard(0))
        self.sequence = sequence

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        super()._apply(module, device_mesh)
        columns, layer = ShardedColumns(device_mesh, self.sequence), cast(nn.Linear, module)

        def forward(x: Tensor) -> Tensor:
            (own,) = columns(x, [layer])
            # The shape is given, since otherwise a DTensor would assume that all parts are equal.
            shape = torch.Size((*own.shape[:-1], layer.out_features))
            stride = (shape[1] * shape[2], shape[2], 1)
            return DTensor.from_local(own, device_mesh, [Shard(-1)], run_check=False, shape=shape, stride=stride)

        module.forward = forward
        return module


class EmbeddingRowsParallel(ShardedLinear):
    """An embedding split by rows (vocabulary), like the head that shares its weight.

    The output is whole, or this rank's part of dim 1.
    """

    def __init__(self, sequence: bool) -> None:
        super().__init__(Shard(0))
        self.sequence = sequence

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        super()._apply(module, device_mesh)
        module.forward = functools.partial(sharded_lookup, cast(nn.Embedding, module), device_mesh, self.sequence)
        return module


class EmbeddingParallel(ParallelStyle):
    """An embedding split by columns (dim): each rank looks up its slice of every token; the output is local.

    A row split sums the output over the ranks; here it is gathered, for half the bytes.
    """

    def __init__(self, output: Placement) -> None:
        super().__init__()
        self.output = output

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(module, device_mesh, self._split, _enter, self._gather)  # type: ignore[arg-type]

    def _split(self, _: str, module: nn.Module, mesh: DeviceMesh) -> None:
        for name, parameter in module.named_parameters(recurse=False):
            columns = distribute_tensor(parameter, mesh, [Shard(1)], src_data_rank=self.src_data_rank)
            module.register_parameter(name, nn.Parameter(columns, parameter.requires_grad))

    def _gather(self, _: nn.Module, output: DTensor, mesh: DeviceMesh) -> Tensor:
        if mesh.device_type == "cpu":  # gloo has no all-to-all between shards: gather, then keep this rank's own
            output = _redistributed(output, Replicate())
        local: Tensor = _redistributed(output, self.output).to_local()
        return local


def _redistributed(x: DTensor, to: Placement) -> DTensor:
    return wait_on(lambda: x.redistribute(placements=[to]), "redistribute", "tensor")


def heads_norm() -> ParallelStyle:
    """A norm over single heads: each rank norms its own heads of [batch, heads, seq, head size]."""
    return NormParallel(parts=True)


class MixtureParallel(ParallelStyle):
    """A mixture of experts, each sharded by its hidden width, over whole inputs: column then row, as in a plain feed-forward.

    `shared_plan` shards its shared experts.

    Every rank routes every token identically. Its experts' results are parts of the sum that leaves, so gradients of the input and of
    the router's weight are parts as well. The experts' weights stay plain tensors, recorded by `shard_manually`.
    """

    def __init__(self, sequence: bool) -> None:
        super().__init__()
        self.between: Placement = Shard(1) if sequence else Replicate()

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        router, experts = module.get_submodule("router"), module.get_submodule("experts")
        for name, parameter in list(router.named_parameters(recurse=False)):
            whole = distribute_tensor(parameter, device_mesh, [Replicate()], src_data_rank=self.src_data_rank)
            router.register_parameter(name, nn.Parameter(whole, parameter.requires_grad))
        dims: dict[str, int] = experts.tensor_dims  # type: ignore[assignment]
        for name, dim in dims.items():
            shard_manually(experts, name, DimShard("tensor", dim, device_mesh.size(), device_mesh.get_local_rank()))

        def enter(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            x, *starts = inputs
            x = x if isinstance(x, DTensor) else DTensor.from_local(x, device_mesh, [self.between], run_check=False)
            whole: Tensor = _redistributed(x, Replicate()).to_local(grad_placements=[Partial()])
            return whole, *starts

        def leave(_: nn.Module, __: tuple[Any, ...], output: Tensor) -> Tensor:
            parts = DTensor.from_local(output, device_mesh, [Partial()], run_check=False)
            local: Tensor = _redistributed(parts, self.between).to_local()
            return local

        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave)
        return module


def shared_plan() -> dict[str, ParallelStyle]:
    """The styles of a mixture's shared experts, whose results are parts of the sum that leaves the mixture."""
    cuts = {"gate": Shard(0), "up": Shard(0), "down": Shard(1)}
    return {f"blocks.*.mlp.shared_experts.{name}": PartLinear(cut) for name, cut in cuts.items()}


def decoder_plan(sequence: bool, tied: bool, columns: tuple[str, ...], *, positions: bool) -> dict[str, ParallelStyle]:
    """The plan of a `Decoder` whose feed-forward has `columns` before its row-split `down`.

    Patterns are for `parallelize_module` on the whole model. A pipeline stage has no module for some: leave those out.
    A tied embedding shares its head's split, by rows.
    """
    between: Placement = Shard(1) if sequence else Replicate()  # of the hidden state outside attention and feed-forward
    norm = NormParallel(parts=sequence)
    embedding = EmbeddingRowsParallel(sequence) if tied else EmbeddingParallel(between)
    plan: dict[str, ParallelStyle] = {"embed": embedding}
    if positions:
        plan["positions"] = EmbeddingParallel(between)
    for part, first, last in (("attention", ("q", "k", "v"), "o"), ("mlp", columns, "down")):
        plan[f"blocks.*.{part}_norm"] = norm
        plan[f"blocks.*.{part}"] = ColumnsParallel(sequence)
        plan |= {f"blocks.*.{part}.{name}": ShardedLinear(Shard(0)) for name in first}
        plan[f"blocks.*.{part}.{last}"] = RowParallel(sequence)
    plan["norm"] = norm
    plan["head"] = HeadParallel(sequence)
    return plan


def _enter(_: nn.Module, inputs: tuple[Any, ...], mesh: DeviceMesh) -> tuple[Any, ...]:
    x = inputs[0]
    return (x if isinstance(x, DTensor) else DTensor.from_local(x, mesh, [Replicate()], run_check=False), *inputs[1:])
