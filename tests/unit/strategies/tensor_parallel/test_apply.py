"""What is refused before a model is sharded over the tensor axis."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle

from shardyard.strategies.layout import Layout, Refusal
from shardyard.strategies.mesh import Mesh
from shardyard.strategies.tensor_parallel.apply import apply_tensor


class Planned(nn.Module):
    """A module of the user's own with torch's styles alone."""

    def tensor_plan(self, sequence: bool) -> dict[str, ParallelStyle]:
        return {"head": ColwiseParallel()}


def mesh_of(**degrees: int) -> Mesh:
    layout = Layout(**degrees)  # type: ignore[arg-type]
    mesh: Any = SimpleNamespace(layout=layout, device=torch.device("cpu"), size=lambda axis: degrees[axis])
    return cast(Mesh, mesh)


def test_a_model_without_a_plan() -> None:
    with pytest.raises(Refusal, match=r"Linear has no tensor_plan\(sequence\)") as refused:
        apply_tensor(nn.Linear(2, 2), mesh_of(tensor=2))
    assert refused.value.field == "layout.tensor"


def test_chunks_for_a_plan_whose_styles_have_none() -> None:
    with pytest.raises(Refusal, match="no style in the tensor plan of Planned sends in chunks") as refused:
        apply_tensor(Planned(), mesh_of(tensor=2), chunks=2)
    assert refused.value.field == "overlap.tensor_chunks"


def test_chunks_without_tensor_parallelism_change_nothing() -> None:
    apply_tensor(Planned(), mesh_of(tensor=1), chunks=2)
