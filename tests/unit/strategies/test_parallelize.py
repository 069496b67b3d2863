"""What is refused when a model is distributed, before any parameter is allocated; what is compiled of blocks that are computed again."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._dynamo.backends.debugging import aot_eager

from shardyard.strategies import compile as of_blocks
from shardyard.strategies.batch import Batch
from shardyard.strategies.comm_overlap import Overlap
from shardyard.strategies.documents import starts_of
from shardyard.strategies.expert_parallel import Tally
from shardyard.strategies.layout import Layout, Refusal
from shardyard.strategies.loss import TokenLoss
from shardyard.strategies.memory_options import MemoryOptions, Mode, Offload, Recompute
from shardyard.strategies.mesh import Mesh, make_mesh
from shardyard.strategies.parallelize import Recipe, apply_inside, parallelize
from shardyard.strategies.precision import PRECISIONS, loss_scale_for
from shardyard.workers.dry_run.fake_tensors import FakeStore
from shardyard.workers.models.llama import Llama
from shardyard.workers.models.moe import MixtureOfExperts
from shardyard.workers.models.presets import Architecture

# The compiler's own: it hides them itself, unless warnings are errors.
pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("UserWarning", "DeprecationWarning")]


class Tied(nn.Module):
    """A module of the user's own whose embedding and head share a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(4, 4), nn.Linear(4, 4, bias=False)
        self.blocks = nn.ModuleDict({str(number): nn.Linear(4, 4) for number in range(4)})
        self.head.weight = self.embed.weight


def _recipe(build: Callable[[], nn.Module], options: MemoryOptions, overlap: Overlap | None = None) -> Recipe:
    precision = PRECISIONS["fp32"]
    loss = TokenLoss(8, loss_scale_for(precision, 8), 0.0, 0.0)
    return Recipe(build, False, Batch(4, 1, 4, 1), precision, options, loss, overlap or Overlap(), lambda: 1.0)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_part_of_the_optimizer_on_the_host_is_refused_where_ranks_share_a_weight(rank: int) -> None:
    recipe = _recipe(Tied, MemoryOptions(offload=Offload(optimizer=0.5)))
    mesh: Any = SimpleNamespace(serves=False, layout=Layout(pipeline=2), index=lambda _: rank)
    with pytest.raises(Refusal, match="share a weight") as refusal:
        parallelize(recipe, cast(Mesh, mesh))
    assert refusal.value.field == "offload.optimizer"


@dataclass
class Compiled:
    """Graphs that the compiler made, and calls of their code."""

    graphs: int = 0
    calls: int = 0


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiled]:
    """Blocks are compiled to operators."""
    found, real = Compiled(), torch.compile

    def backend(graph: Any, inputs: list[Tensor]) -> Callable[..., Any]:
        found.graphs += 1
        code = aot_eager(graph, inputs)

        def run(*args: Any) -> Any:
            found.calls += 1
            return code(*args)

        return run

    monkeypatch.setattr(of_blocks, "_whole_compiler", lambda: None)
    monkeypatch.setattr(torch, "compile", lambda forward, options: real(forward, backend=backend, options=options))
    torch._dynamo.reset()
    yield found
    torch._dynamo.reset()


@pytest.fixture
def ranks(kind: str) -> Iterator[None]:
    """One, or two of an axis, where nothing arrives."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2 if kind in ("ring", "chunks") else 1)
    yield
    dist.destroy_process_group()


def _trained(kind: str, options: MemoryOptions, compiled: Compiled, layers: int = 2) -> tuple[int, int, list[Tensor]]:
    """Calls of compiled code in the forward and in the backward pass of the blocks, and the gradients of their weights."""
    family = "moe" if kind == "experts" else "llama"
    experts: dict[str, Any] = {"experts": 4, "top_k": 2} if family == "moe" else {}
    arch = Architecture(
        family=family, vocab=16, dim=16, layers=layers, heads=2, kv_heads=2, hidden=32, max_seq_len=16, **experts
    )
    torch.manual_seed(0)
    model = (MixtureOfExperts if experts else Llama)(arch)
    for value in model.parameters():
        nn.init.normal_(value, std=0.1)
    layout = Layout(context=2 if kind == "ring" else 1, tensor=2 if kind == "chunks" else 1)
    mesh, overlap = make_mesh(layout, torch.device("cpu")), Overlap(tensor_chunks=2 if kind == "chunks" else 1)
    apply_inside(model, _recipe(lambda: model, options, overlap), mesh, Tally(mesh))
    tokens = torch.arange(32).view(2, 16) % 16
    documents = {"starts": starts_of(tokens, 5)} if kind == "packed" else {}
    before = compiled.calls
    loss = model(tokens, **documents).square().sum()
    forward = compiled.calls - before
    loss.backward()
    return (
        forward,
        compiled.calls - before - forward,
        [value.grad for value in model.parameters() if value.grad is not None],
    )


def _options(mode: Mode, compile_: bool = True) -> MemoryOptions:
    return MemoryOptions(recompute=Recompute(mode=mode), compile=compile_)


#: Blocks with a part that runs as it is, between compiled ones.
IN_PARTS = ["packed", "experts", "ring"]


@pytest.mark.usefixtures("ranks")
@pytest.mark.parametrize("kind", IN_PARTS)
def test_a_block_of_several_graphs_is_compiled_where_it_is_computed_again(kind: str, compiled: Compiled) -> None:
    forward, again, found = _trained(kind, _options("full"), compiled)
    assert forward > 2 and again > 2
    if kind != "ring":  # of which nothing arrives here
        torch.testing.assert_close(found, _trained(kind, _options("full", compile_=False), compiled)[2])


@pytest.mark.usefixtures("ranks")
@pytest.mark.parametrize("kind", ["joined"])
@pytest.mark.parametrize("mode", ["full", "selective"])
def test_a_block_of_one_graph_is_computed_again_in_its_code(kind: str, mode: Mode, compiled: Compiled) -> None:
    forward, again, found = _trained(kind, _options(mode), compiled)
    assert (compiled.graphs, forward, again) == (1, 2, 0)
    torch.testing.assert_close(found, _trained(kind, _options(mode, compile_=False), compiled)[2])


@pytest.mark.usefixtures("ranks")
@pytest.mark.parametrize("kind", IN_PARTS)
def test_selective_recompute_of_several_graphs_would_compile_nothing(kind: str, compiled: Compiled) -> None:
    """So `check_compiled_parts` refuses it. If this fails, torch may keep results of operators in compiled code."""
    _trained(kind, _options("selective"), compiled)
    assert compiled.calls == 0


@pytest.mark.usefixtures("ranks")
@pytest.mark.parametrize("kind", ["chunks"])
@pytest.mark.parametrize("mode", ["none", "full"])
def test_equal_blocks_of_tensor_ranks_share_their_code(kind: str, mode: Mode, compiled: Compiled) -> None:
    """More than torch would compile one by one: it stops after eight."""
    forward, again, _ = _trained(kind, _options(mode), compiled, layers=10)
    assert (compiled.graphs, forward, again) == (1, 10, 10 if mode == "full" else 0)
