"""A user's own module: data parallel and ZeRO on any module; tensor and pipeline only with what the module gives."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.ranks import train

Make = Callable[..., Any]

MODULE = '''
import torch
from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel


class Bigram(nn.Module):
    """Next token from this one, with odd sizes, a scalar parameter, dropout and one parameter that has no part in the loss."""

    def __init__(self, width, dropout=0.0):
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.layers = nn.Sequential(nn.Linear(width, 13), nn.Tanh(), nn.Linear(13, width))
        self.dropout = nn.Dropout(dropout)
        self.temperature = nn.Parameter(torch.ones(()))
        self.unused = nn.Parameter(torch.ones(5, 2))
        self.head = nn.Linear(width, 256)
        self.register_buffer("scale", torch.full((1,), 2.0))

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.head(self.dropout(x + self.layers(x)) * self.temperature) * self.scale


def make(width=10, dropout=0.0):
    return Bigram(width, dropout)


def not_a_module():
    return 3


def bad_shape():
    return nn.Embedding(256, 4)


def statistics():
    return nn.Sequential(nn.Embedding(256, 4), nn.BatchNorm1d(4))


class Rotating(Bigram):
    """Turns pairs of numbers by the angles of a table, which is complex or has cosines and sines."""

    def __init__(self, width, complex_table):
        super().__init__(width)
        angles = torch.arange(width // 2, dtype=torch.float64)
        table = torch.polar(torch.ones_like(angles), angles)
        self.register_buffer("table", table if complex_table else torch.view_as_real(table))

    def forward(self, tokens):
        x = self.embed(tokens)
        pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)))
        table = self.table if self.table.is_complex() else torch.view_as_complex(self.table)
        return self.head(self.layers(torch.view_as_real(pairs * table).flatten(-2).to(x.dtype)))


def rotating(complex_table):
    return Rotating(4, complex_table)


class Scaled(Bigram):
    def forward(self, tokens):
        return self.head(self.layers(self.embed(tokens) * self.scale))


def scaled():
    return Scaled(10)


def transposed():
    module = Bigram(10)
    for layer in (module.layers[0], module.head):
        layer.weight = nn.Parameter(layer.weight.t().contiguous().t())
    return module


class Indexed(nn.Module):
    """Blocks of which a forward pass takes the parts, and calls none."""

    def __init__(self, width):
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.blocks = nn.ModuleDict({str(n): nn.ModuleDict({"mlp": nn.Linear(width, width)}) for n in range(3)})
        self.head = nn.Linear(width, 256)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks.values():
            x = x + block["mlp"](x).tanh()
        return self.head(x)


def indexed():
    return Indexed(16)


class Placed(Bigram):
    """Adds views of parameters to a hidden state and to each other: gradients come as views of others' memory."""

    def __init__(self, width):
        super().__init__(width)
        self.positions = nn.Parameter(torch.randn(32, width))
        self.gains = nn.ParameterList(torch.randn(width * width) for _ in range(2))

    def forward(self, tokens):
        x = self.embed(tokens).tanh() + self.positions.unsqueeze(0)
        first, second = (gain.view(x.shape[-1], -1) for gain in self.gains)
        return self.head(self.layers(x @ (first + second)))


def placed():
    return Placed(10)


class Adapted(Bigram):
    """Adds an adapter to a frozen weight while it is evaluated, as loralib's layers do."""

    def __init__(self, width):
        super().__init__(width)
        self.frozen = nn.Parameter(torch.eye(width), requires_grad=False)
        self.adapter = nn.Parameter(torch.zeros(width, width))
        self.merged = False

    def train(self, mode=True):
        super().train(mode)
        if self.merged == mode:
            self.frozen.data += -self.adapter.data if mode else self.adapter.data
            self.merged = not mode
        return self

    def forward(self, tokens):
        weight = self.frozen if self.merged else self.frozen + self.adapter
        return self.head(self.layers(nn.functional.linear(self.embed(tokens), weight)))


def adapted():
    return Adapted(10)


class Chosen(nn.Module):
    """A block that is called twice, and one of which each sequence uses one of two layers, by its tokens."""

    def __init__(self, widths):
        super().__init__()
        self.embed, self.head = nn.Embedding(256, 8), nn.Linear(8, 256)
        self.blocks = nn.ModuleDict({"twice": nn.Linear(8, 8), "either": Either(widths)})

    def forward(self, tokens):
        x = self.embed(tokens)
        for _ in range(2):
            x = x + self.blocks["twice"](x).tanh()
        return self.head(self.blocks["either"](x, tokens))


class Either(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, 8)) for width in widths)

    def forward(self, x, tokens):
        chosen, found = tokens.sum(1) % 2, torch.zeros_like(x)
        for number, layer in enumerate(self.layers):
            rows = chosen == number
            if rows.any():
                found[rows] = layer(x[rows])
        return x + found


def chosen(widths):
    return Chosen(widths)


class Part(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.inner, self.dropout, self.table = nn.Linear(width, width), nn.Dropout(dropout), nn.Embedding(256, width)

    def forward(self, x, tokens):
        return x + self.dropout(torch.tanh(self.inner(x) + self.table(tokens)))


class Staged(nn.Module):
    """Blocks that a pipeline divides; each looks up the tokens, which stages pass on."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.embed = nn.Embedding(256, 8)
        self.blocks = nn.ModuleDict({str(n): Part(8, dropout) for n in range(4)})
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 256)

    def forward(self, x, tokens=None):
        x, tokens = (x, tokens) if self.embed is None else (self.embed(x), x)
        for block in self.blocks.values():
            x = block(x, tokens)
        return (x, tokens) if self.head is None else self.head(self.norm(x))


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("no more")


class Ending(Staged):
    """Raises in the forward or in the backward pass of its second stage, or in the backward pass of its first, in the second step."""

    def __init__(self, where):
        super().__init__()
        self.where, self.passes = where, 0

    def forward(self, x, tokens=None):
        found = super().forward(x, tokens)
        if not self.training or (self.head is None) != (self.where == "first backward"):
            return found
        self.passes += 1
        if self.passes <= 4:
            return found
        if self.where == "forward":
            raise ValueError("no more")
        return (Raises.apply(found[0]), found[1]) if self.head is None else Raises.apply(found)


class Permuted(nn.Module):
    """Without a residual, so that the gradient of its input has the strides of a permuted one, and so has that of a weight."""

    def __init__(self, width):
        super().__init__()
        self.conv, self.mix = nn.Conv1d(width, width, 1), nn.Parameter(torch.randn(width, width) / 3)

    def forward(self, x, tokens):
        x = self.conv(x.transpose(1, 2)).transpose(1, 2).contiguous()
        return torch.tanh(torch.einsum("bsd,ed->bse", x, self.mix))


class Viewed(Part):
    def forward(self, x, tokens):
        return super().forward(x, tokens).transpose(1, 2).transpose(1, 2)


class Viewing(Staged):
    """Its stages return views."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleDict({str(n): Viewed(8, 0.0) for n in range(4)})


class Permuting(Staged):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleDict({str(n): Permuted(8) for n in range(4)})


class Finished(Staged):
    """With a last norm that is on every stage, as it has a name of its own; the last block uses it too if `twice`."""

    def __init__(self, twice=False):
        super().__init__()
        self.ln_f, self.twice = self.norm, twice
        del self.norm

    def forward(self, x, tokens=None):
        x, tokens = (x, tokens) if self.embed is None else (self.embed(x), x)
        for name, block in self.blocks.items():
            x = block(self.ln_f(x) if self.twice and name == "3" else x, tokens)
        return (x, tokens) if self.head is None else self.head(self.ln_f(x))


class Choosing(Staged):
    """Its last block uses one of two layers for each sequence, by its tokens; a parameter on every stage has no part in the loss."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleDict({**{str(n): Part(8, 0.0) for n in range(3)}, "3": Either((5, 5))})
        self.unused = nn.Parameter(torch.ones(5, 2))


class Added(nn.Module):
    """Two weights that are added up: autograd returns one tensor as the gradient of both."""

    def __init__(self, width):
        super().__init__()
        self.base, self.delta = (nn.Parameter(torch.randn(width, width) / 4) for _ in range(2))

    def forward(self, x, tokens):
        return x + torch.tanh(x @ (self.base + self.delta))


class Adding(Staged):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleDict({str(n): Added(8) for n in range(4)})


class Views(nn.Module):
    """Two weights that are added up through views, and one that is added to the hidden state through one."""

    def __init__(self, width):
        super().__init__()
        self.base, self.delta = (nn.Parameter(torch.randn(width * width) / 4) for _ in range(2))
        self.positions = nn.Parameter(torch.randn(32, width))

    def forward(self, x, tokens):
        weight = self.base.view(x.shape[-1], -1) + self.delta.view(x.shape[-1], -1)
        return x + torch.tanh((x + self.positions.unsqueeze(0)) @ weight)


class Sharing(Staged):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleDict({str(n): Views(8) for n in range(4)})


class Latent(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner, self.latents = nn.Linear(width, width), nn.Parameter(torch.randn(width))

    def forward(self, x):
        return x + torch.tanh(self.inner(x))


class Latents(nn.Module):
    """Its second block passes on what depends on its weights alone."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(256, 8), nn.LayerNorm(8), nn.Linear(8, 256)
        self.blocks = nn.ModuleDict({str(n): Latent(8) for n in range(4)})

    def forward(self, x, latents=None):
        x = x if self.embed is None else self.embed(x)
        for name, block in self.blocks.items():
            x = block(x)
            latents = torch.tanh(block.latents).expand_as(x) if name == "1" else latents
        latents = x if latents is None else latents
        return (x, latents) if self.head is None else self.head(self.norm(x + latents))


class Wrapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Bigram(16)

    def forward(self, tokens):
        return self.inner(tokens)


class Planned(nn.Module):
    """A head that shares the embedding's weight and a frozen norm, with torch's styles for tensor parallelism."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(256, 8), nn.LayerNorm(8), nn.Linear(8, 256, bias=False)
        self.head.weight = self.embed.weight
        with torch.no_grad():
            self.norm.weight.mul_(0.5).requires_grad_(False)

    def forward(self, tokens):
        return self.head(self.norm(self.embed(tokens)))

    def tensor_plan(self, sequence):
        return {
            "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
        }


class Timed(nn.Module):
    """Attends to the positions that a mask leaves, and turns by the cosine of a time: both are fp32. The first row of the mask is full."""

    def __init__(self):
        super().__init__()
        self.query = nn.Linear(8, 8)

    def forward(self, x, time, mask):
        self.log("bytes", time.element_size() + mask.element_size())
        scores = self.query(x) @ x.transpose(1, 2) + mask
        return x + (scores.softmax(-1).to(x.dtype) @ x) * time.cos().to(x.dtype).unsqueeze(-1)


class Passing(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(256, 8), nn.Linear(8, 256)
        self.blocks = nn.ModuleDict({str(n): Timed() for n in range(2)})

    def forward(self, tokens):
        x, length, floats = self.embed(tokens), tokens.shape[1], {"dtype": torch.float32, "device": tokens.device}
        time = torch.arange(length, **floats) * 100.1
        mask = torch.full((length, length), torch.finfo(torch.float32).min, **floats).triu()
        for block in self.blocks.values():
            x = block(x, time=time, mask=mask)
        return self.head(x)


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner, self.gate = nn.Linear(width, width), nn.Parameter(torch.tensor(0.1))

    def forward(self, x):
        return x + self.gate * self.shift * torch.tanh(self.inner(x))


class Gated(nn.Module):
    """Scalars: a gate of each block, a frozen one of all blocks, and if `shared` one of all blocks and the model."""

    def __init__(self, shared=True):
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(256, 8), nn.LayerNorm(8), nn.Linear(8, 256)
        self.blocks = nn.ModuleDict({str(n): Gate(8) for n in range(4)})
        self.scale = nn.Parameter(torch.tensor(0.7)) if shared else None
        frozen = nn.Parameter(torch.tensor(1.3), requires_grad=False)
        for block in self.blocks.values():
            block.shift, block.scale = frozen, self.scale

    def forward(self, x):
        x = x if self.embed is None else self.embed(x)
        for name, block in self.blocks.items():
            self.log(f"gate/{name}", block.gate)
            self.log(f"bytes/{name}", block.gate.element_size())
            self.log("shift", block.shift)
            x = block(x) if block.scale is None else block(x) * block.scale
        return x if self.head is None else self.head(self.norm(x))


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        return x + self.norm(x)


class TiedEnds(nn.Module):
    """Its first and its last stage share a weight. If `unlike` its plan shards it by columns in one, and by rows in the other."""

    def __init__(self, unlike=False):
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(256, 8), nn.LayerNorm(8), nn.Linear(8, 256, bias=False)
        self.blocks, self.unlike = nn.ModuleDict({str(n): Normed() for n in range(2)}), unlike
        self.head.weight = self.embed.weight

    def forward(self, x):
        x = x if self.embed is None else self.embed(x)
        for block in self.blocks.values():
            x = block(x)
        return x if self.head is None else self.head(self.norm(x))

    def tensor_plan(self, sequence):
        rows = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
        return {
            "embed": ColwiseParallel(output_layouts=Shard(1)) if self.unlike else rows,
            "blocks.*.norm": SequenceParallel(use_local_output=True),
            "norm": SequenceParallel(use_local_output=True),
            "head": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
        }


class ScalarNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(0.1))

    def forward(self, x):
        self.log("bytes", self.weight.element_size())
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


class ScalarPlanned(Planned):
    def __init__(self):
        super().__init__()
        self.norm = ScalarNorm()


class Counting(Bigram):
    def forward(self, tokens):
        self.scale += 1
        return super().forward(tokens)


class Calibrated(Bigram):
    """Sets a scale from the first batch, of its data or of its size."""

    def __init__(self, of_data):
        super().__init__(4)
        self.of_data, self.is_set = of_data, False

    def forward(self, tokens):
        if not self.is_set:
            self.scale.fill_(tokens.float().mean() if self.of_data else tokens.shape[1])
            self.is_set = True
        return super().forward(tokens)


def calibrated(of_data=True):
    return Calibrated(of_data)


def unlike():
    return TiedEnds(unlike=True)


def counting():
    return Counting(4)
'''


#: Blocks on both stages: by cost all would be on one.
HALVES: dict[str, Any] = {"stages": 2, "blocks": [2, 2]}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    folder = tmp_path_factory.mktemp("code")
    (folder / "my_model.py").write_text(MODULE)

    def model(factory: str = "make", **args: Any) -> dict[str, Any]:
        return {"import": f"my_model:{factory}", "code": str(folder), "args": args}

    return model


LAYOUTS: list[dict[str, Any]] = [
    {"data": 2},
    {"data": 4, "zero": 1, "micro_batch": 2},
    {"data": 3, "zero": 2},
    {"data": 2, "zero": 2, "micro_batch": 4},
    {"data": 2, "zero": 3},
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_equals_one_process(layout: Any, own: Make, root: Path, make_spec: Make, one_process: Make) -> None:
    spec = make_spec(layout, model=own(width=10))
    found, expected = train(spec, root), one_process(spec)
    assert_same(found, expected)


def test_dropout_draws_the_same_after_a_resume(own: Make, root: Path, make_spec: Make) -> None:
    spec = make_spec({"data": 2}, model=own(dropout=0.3), checkpoint={"every": 3, "final": False})
    whole = train(spec, root, "dropout")
    resumed = train(spec, root, "dropout")
    assert resumed["losses"] == whole["losses"][3:]


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "zb-h1"])
def test_a_pipeline_of_tokens_equals_one_process_and_draws_the_same_after_a_resume(
    schedule: str, own: Make, root: Path, make_spec: Make, one_process: Make
) -> None:
    """Torch's stages would run a first pass of their own, with numbers that are no tokens from the second stage on."""
    layout = {"pipeline": 2, "schedule": schedule, "micro_batch": 2}
    spec = make_spec(layout, model=own("Staged"))
    found, expected = train(spec, root), one_process(spec)
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-10)
    spec = make_spec(layout, model=own("Staged", dropout=0.3), checkpoint={"every": 3, "final": False})
    whole, resumed = (train(spec, root, f"dropout-{schedule}") for _ in range(2))
    assert resumed["losses"] == whole["losses"][3:]


@pytest.mark.parametrize("where", ["forward", "backward", "first backward"])
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_an_error_in_a_stage_is_reported_as_it_was_raised(
    schedule: str, where: str, own: Make, root: Path, make_spec: Make
) -> None:
    """Torch's pipelines put it into a RuntimeError, in which its class, its message and its code would be lost."""
    spec = make_spec({"pipeline": 2, "schedule": schedule, "micro_batch": 4}, model=own("Ending", where=where))
    with pytest.raises(RuntimeError, match=r"ValueError: no more\s*\Z"):
        train(spec, root)


@pytest.mark.parametrize(("schedule", "pipeline"), [("zb-h1", HALVES), ("zbv", 2)], ids=["zb-h1", "zbv"])
def test_gradients_may_have_any_strides_in_a_split_backward_pass(
    schedule: str, pipeline: Any, own: Make, root: Path, make_spec: Make, one_process: Make
) -> None:
    """The gradient of the inputs alone is sent as it is, and the optimizer gets that of the weights."""
    spec = make_spec({"pipeline": pipeline, "schedule": schedule, "micro_batch": 2}, model=own("Permuting"))
    found, expected = train(spec, root), one_process(spec)
    assert_same(found, expected)


def test_a_stage_may_return_a_view_in_a_split_backward_pass(
    own: Make, root: Path, make_spec: Make, one_process: Make
) -> None:
    spec = make_spec({"pipeline": 2, "schedule": "zbv", "micro_batch": 2}, model=own("Viewing"))
    assert_same(train(spec, root), one_process(spec))


@pytest.mark.full
def test_a_weight_on_every_stage_has_a_split_backward_pass_where_it_has_one_place(
    own: Make, root: Path, make_spec: Make, one_process: Make
) -> None:
    layout = {"pipeline": {"stages": 2, "blocks": [2, 2]}, "schedule": "zb-h1", "micro_batch": 2}
    spec = make_spec(layout, model=own("Finished"))
    found, expected = train(spec, root), one_process(spec)
    assert_same(found, expected)
    spec = make_spec(layout, model=own("Finished", twice=True))
    with pytest.raises(RuntimeError, match=r"layout\.schedule: zb-h1 splits .*: ln_f\.weight of Finished"):
        train(spec, root)
    spec = make_spec(
        {"pipeline": {"stages": 2, "blocks": [3, 1]}, "schedule": "zb-h1", "micro_batch": 2},
        model=own("Finished", twice=True),
    )
    with pytest.raises(RuntimeError, match=r"layout\.schedule: zb-h1 splits"):
        train(spec, root)


@pytest.mark.full
@pytest.mark.parametrize("zero", [0, 1, 3])
@pytest.mark.parametrize(("factory", "schedule"), [("Adding", "zb-h1"), ("Sharing", "1f1b")])
def test_weights_that_are_added_up_have_gradients_of_their_own_under_a_pipeline(
    factory: str, schedule: str, zero: int, own: Make, root: Path, make_spec: Make, one_process: Make
) -> None:
    """A split backward pass gives both one tensor, a whole one does if they are views."""
    layout = {"pipeline": HALVES, "schedule": schedule, "data": 2, "zero": zero, "micro_batch": 1}
    spec = make_spec(layout, model=own(factory))
    found, expected = train(spec, root), one_process(spec)
    assert_same(found, expected)


@pytest.mark.full
def test_ends_that_share_a_sharded_weight_add_up_its_gradients(
    own: Make, root: Path, make_spec: Make, one_process: Make
) -> None:
    spec = make_spec({"tensor": 2, "pipeline": 2, "micro_batch": 2}, model=own("TiedEnds"))
    found, expected = train(spec, root), one_process(spec)
    assert_same(found, expected)


@pytest.mark.full
def test_a_stage_that_passes_on_what_depends_on_weights_alone_has_no_split_backward_pass(
    own: Make, root: Path, make_spec: Make, one_process: Make
) -> None:
    pipeline, model = {"stages": 3, "blocks": [1, 1, 2]}, own("Latents")
    spec = make_spec({"pipeline": pipeline, "schedule": "1f1b", "micro_batch": 2}, model=model)
    np.testing.assert_allclose(train(spec, root)["losses"], one_process(spec)["losses"], rtol=1e-10)
    spec = make_spec({"pipeline": pipeline, "schedule": "zb-h1", "micro_batch": 2}, model=model)
    with pytest.raises(RuntimeError, match=r"layout\.schedule: zb-h1 splits .*: on blocks\.1\.latents of Latents"):
        train(spec, root)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("precision", {"precision": "fp8"}),
        ("recompute", {"recompute": "full"}),
        ("compile", {"compile": True}),
        ("offload.activations", {"offload": {"activations": True}}),
    ],
)
def test_options_of_blocks_are_refused_where_none_are_found(
    field: str, changes: dict[str, Any], own: Make, root: Path, make_spec: Make
) -> None:
    with pytest.raises(RuntimeError, match=f"{field}: it applies to repeated blocks, and Wrapper has no container"):
        train(make_spec({}, model=own("Wrapper"), **changes), root)


def test_validation_drops_nothing(own: Make, root: Path, make_spec: Make) -> None:
    """With a learning rate of nearly zero both modules stay what they are."""
    still = {"optimizer": {"lr": 1e-30}, "steps": 2}
    losses = []
    for rate in (0.9, 0.0):
        found = train(make_spec({"data": 2}, model=own(dropout=rate), **still), root)
        losses.append([data["loss"] for kind, data in found["events"] if kind in ("step", "eval")])
    assert abs(losses[0][0] - losses[1][0]) > 1e-3  # a step
    np.testing.assert_allclose(losses[0][-1], losses[1][-1], rtol=1e-12)  # the validation after the last one


def test_an_adapter_that_is_merged_for_a_validation_has_its_newest_values(
    own: Make, root: Path, make_spec: Make, one_process: Make
) -> None:
    spec = make_spec(
        {"data": 2, "zero": 1}, model=own("adapted"), eval={"every": 1, "batches": 1}, optimizer={"lr": 0.1}
    )
    found, expected = train(spec, root), one_process(spec)
    assert_same(found, expected)
    losses = [[data["loss"] for kind, data in one["events"] if kind == "eval"] for one in (found, expected)]
    np.testing.assert_allclose(*losses, rtol=1e-10)


def test_a_complex_table_keeps_its_imaginary_part(own: Make, root: Path, make_spec: Make) -> None:
    for layout in ({"data": 2}, {"data": 2, "zero": 3}):
        found = [train(make_spec(layout, model=own("rotating", complex_table=it)), root) for it in (True, False)]
        np.testing.assert_allclose(found[0]["losses"], found[1]["losses"], rtol=1e-12)


def test_a_table_of_floats_has_one_dtype_in_every_stage(own: Make, root: Path, make_spec: Make) -> None:
    """In fp32 beside parameters in bf16 it would be refused by a linear layer."""
    for zero in (0, 1, 3):
        spec = make_spec({"data": 2, "zero": zero}, model=own("scaled"), precision="bf16", steps=2)
        assert len(train(spec, root)["losses"]) == 2


def _logged(found: Any) -> list[Any]:
    return [data["logged"] for kind, data in found["events"] if kind == "step"]


def test_what_blocks_are_called_with_keeps_its_dtype_in_every_stage(own: Make, root: Path, make_spec: Make) -> None:
    """In bf16 the least fp32 number is -inf, of which a row of a mask makes NaN, and a time of 3,000 is off by up to 8."""
    changes = {"model": own("Passing"), "precision": "bf16", "steps": 3}
    two, three = (train(make_spec({"data": 2, "zero": zero}, **changes), root) for zero in (2, 3))
    assert {values["bytes"] for values in [*_logged(two), *_logged(three)]} == {8.0}
    np.testing.assert_allclose(three["losses"], two["losses"], rtol=1e-4)


def test_scalars_are_rounded_from_masters_in_every_stage(own: Make, root: Path, make_spec: Make) -> None:
    """A checkpoint has the masters, from which another stage continues."""
    changes = {"model": own("Gated"), "precision": "bf16", "steps": 3, "checkpoint": {"every": 2, "final": False}}
    whole = {}
    for zero in (0, 2, 3):
        spec = make_spec({"data": 2, "zero": zero, "micro_batch": 4}, **changes)
        whole[zero] = train(spec, root, f"scalars-{zero}")
        first = _logged(whole[zero])[0]
        assert (first["gate/0"], first["bytes/0"], first["shift"]) == (0.10009765625, 2.0, 1.296875)
        _assert_alike_in_bf16(whole[zero], whole[0])
    (path,) = [data["path"] for kind, data in whole[3]["events"] if kind == "checkpoint"]
    resumed = train(make_spec({"data": 2, "zero": 2, "micro_batch": 4}, **changes), root, "resumed", resume=path)
    np.testing.assert_allclose(resumed["losses"], whole[0]["losses"][2:], rtol=1e-4)


def assert_same(found: Any, expected: Any) -> None:
    """Equal losses and parameters in fp64, but for sums of another order."""
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-10)
    for name, value in expected["parameters"].items():
        np.testing.assert_allclose(found["parameters"][name], value, rtol=0, atol=1e-10, err_msg=name)


def _assert_alike_in_bf16(found: Any, expected: Any) -> None:
    """Equal but for sums in fp32 of another order, by which few numbers round to their neighbour."""
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-4)
    np.testing.assert_allclose(found["norms"], expected["norms"], rtol=1e-3)
    for name, value in expected["parameters"].items():
        if value.shape == (1,):
            np.testing.assert_allclose(found["parameters"][name], value, rtol=1e-4, err_msg=name)


#: Layouts and the argument `shared` of `Gated`, with what else the spec has.
SCALARS: dict[str, tuple[dict[str, Any], bool, dict[str, Any]]] = {
    "data2": ({"data": 2}, True, {}),
    "groups": ({"data": 4, "shard": 2}, True, {}),
    "host": ({"data": 2}, True, {"offload": {"parameters": True}}),
    "disk": ({"data": 2}, True, {"offload": {"parameters": True, "to": "disk"}}),
    "1f1b": ({"data": 2, "pipeline": HALVES}, True, {}),
    "interleaved": (
        {"data": 2, "pipeline": {"stages": 2, "blocks": [1, 1, 1, 1]}, "schedule": "interleaved"},
        True,
        {},
    ),
    "zb-h1": ({"data": 2, "pipeline": HALVES, "schedule": "zb-h1"}, False, {}),
}


@pytest.mark.full
@pytest.mark.parametrize(("layout", "one_for_all", "changes"), SCALARS.values(), ids=SCALARS)
def test_scalars_in_stage_3_equal_one_process_and_another_stage(
    layout: Any, one_for_all: bool, changes: Any, own: Make, root: Path, make_spec: Make, one_process: Make
) -> None:
    three, same = {**layout, "zero": 3, "micro_batch": 2}, {"model": own("Gated", shared=one_for_all), "steps": 3}
    found, expected = train(make_spec(three, **same, **changes), root), one_process(make_spec({}, **same))
    assert_same(found, expected)
    other = {key: value for key, value in three.items() if key not in ("zero", "shard")}
    low = train(make_spec(three, precision="bf16", **same, **changes), root)
    _assert_alike_in_bf16(low, train(make_spec(other, precision="bf16", **same), root))
    assert {value for step in _logged(low) for name, value in step.items() if name.startswith("bytes")} == {2.0}


@pytest.mark.full
@pytest.mark.parametrize("more", [{}, {"pipeline": HALVES, "schedule": "zb-h1"}], ids=["data2", "zb-h1"])
def test_stage_3_sums_gradients_in_fp32(more: Any, own: Make, root: Path, make_spec: Make) -> None:
    """Also those of passes that call no hooks. In bf16 a sum over eight micro-batches would be off by up to 3%."""
    # A large step, after which parameters show their gradients.
    changes = {
        "model": own("Gated", shared=False),
        "steps": 1,
        "optimizer": {"name": "sgd", "lr": 10.0},
        "schedule": {},
    }
    found = []
    for zero, gradients in ((1, "fp32"), (3, "compute")):
        precision = {"compute": "bf16", "gradients": gradients}
        spec = make_spec({"data": 2, "zero": zero, "micro_batch": 1, **more}, precision=precision, **changes)
        found.append(train(spec, root)["parameters"])
    for name, value in found[0].items():
        np.testing.assert_allclose(found[1][name], value, rtol=0, atol=1e-6 * np.abs(value).max(), err_msg=name)


@pytest.mark.full
def test_a_scalar_of_torchs_styles_is_rounded_too(own: Make, root: Path, make_spec: Make, one_process: Make) -> None:
    layout, model = {"tensor": 2, "data": 2}, own("ScalarPlanned")
    found = train(make_spec({**layout, "zero": 3}, model=model), root)
    np.testing.assert_allclose(found["losses"], one_process(make_spec({}, model=model))["losses"], rtol=1e-10)
    low = [train(make_spec({**layout, "zero": zero}, model=model, precision="bf16"), root) for zero in (0, 3)]
    assert {step["bytes"] for one in low for step in _logged(one)} == {2.0}
    _assert_alike_in_bf16(low[1], low[0])


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("factory", ["transposed", "indexed"])
def test_any_memory_and_any_use_of_blocks_equals_one_process(
    factory: str, zero: int, own: Make, root: Path, make_spec: Make, one_process: Make
) -> None:
    """Weights whose memory is that of their transpose, and blocks that are never called."""
    spec = make_spec({"data": 2, "zero": zero}, model=own(factory), overlap={"bucket_mb": 0.001})
    found, expected = train(spec, root), one_process(spec)
    assert_same(found, expected)


@pytest.mark.parametrize(
    "layout",
    [
        {"micro_batch": 1},
        {"data": 2},
        {"data": 2, "zero": 1},
        pytest.param({"data": 2, "zero": 2}, marks=pytest.mark.full),
        pytest.param({"data": 2, "zero": 3}, marks=pytest.mark.full),
    ],
    ids=str,
)
def test_gradients_that_share_memory_equal_one_process(
    layout: Any, own: Make, root: Path, make_spec: Make, one_process: Make
) -> None:
    """With one sequence at a time nothing is summed over the batch, so that no gradient is a new tensor. Each is sent alone."""
    spec = make_spec(layout, model=own("placed"), global_batch=2, overlap={"bucket_mb": 0.001})
    found, expected = train(spec, root), one_process(spec)
    assert_same(found, expected)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("widths", [(5, 5), (5, 7)], ids=["alike", "unlike"])
def test_layers_that_one_rank_alone_uses_and_a_block_that_is_called_twice_equal_one_process(
    widths: tuple[int, int], zero: int, own: Make, root: Path, make_spec: Make, one_process: Make
) -> None:
    """Without zeros for the others, ZeRO-3 would add the gradients of different layers where their shapes are alike."""
    layout = {"data": 2, "zero": zero, "micro_batch": 1}
    spec = make_spec(layout, model=own("chosen", widths=list(widths)), overlap={"bucket_mb": 0.001})
    found, expected = train(spec, root), one_process(spec)
    assert_same(found, expected)


@pytest.mark.full
@pytest.mark.parametrize(
    ("schedule", "given", "rtol"),
    [("1f1b", None, 1e-6), ("zb-h1", None, 1e-6), ("1f1b", {"gradients": "int8"}, 1e-3)],
    ids=["1f1b", "zb-h1", "quantised"],
)
def test_layers_that_one_rank_alone_uses_add_up_under_a_pipeline_in_16_bits(
    schedule: str, given: Any, rtol: float, own: Make, root: Path, make_spec: Make
) -> None:
    """Torch refuses its own zeros, which have 16 bits, beside sums over micro-batches."""
    changes = {"optimizer": {"name": "sgd", "lr": 1.0}, "schedule": {}, "global_batch": 4, "precision": "bf16"}
    layout = {"pipeline": HALVES, "data": 2, "micro_batch": 1, "schedule": schedule}
    layouts = ({**layout, "zero": 3, "zero_plus_plus": given}, {**layout, "zero": 1})
    found, expected = (train(make_spec(one, model=own("Choosing"), **changes), root) for one in layouts)
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=rtol)


def test_torchs_styles_keep_weights_tied_and_frozen(own: Make, root: Path, make_spec: Make, one_process: Make) -> None:
    spec = make_spec({"tensor": 2}, model=own("Planned"))
    found, expected = train(spec, root), one_process(spec)
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-10)
    assert found["parameters"].keys() == {"embed.weight", "norm.bias"}
    for name, value in expected["parameters"].items():
        np.testing.assert_allclose(found["parameters"][name], value, rtol=0, atol=1e-10, err_msg=name)


@pytest.mark.parametrize(
    ("layout", "factory", "message"),
    [
        ({"tensor": 2}, "make", "has no tensor_plan"),
        ({"pipeline": 2}, "make", "cannot be split"),
        ({"tensor": 2, "pipeline": 2}, "unlike", r"embed\.weight and head\.weight of TiedEnds are one weight"),
        ({}, "not_a_module", "returned a int"),
        ({}, "missing", "cannot import my_model:missing"),
        ({}, "statistics", "1 is a BatchNorm1d with running statistics"),
        ({}, "bad_shape", r"returned \(16, 32, 4\)|index|out of"),
        ({"data": 2, "zero": 3}, "counting", "the buffer scale has changed in step 2"),
        ({"data": 2, "zero": 1}, "calibrated", "the buffer scale differs between replicas after step 1"),
    ],
)
def test_what_it_cannot_do_is_said(
    layout: Any, factory: str, message: str, own: Make, root: Path, make_spec: Make
) -> None:
    with pytest.raises(RuntimeError, match=message):
        train(make_spec(layout, model=own(factory)), root)


def test_a_buffer_that_the_first_step_sets_alike_on_all_replicas_is_constant(
    own: Make, root: Path, make_spec: Make
) -> None:
    spec = make_spec({"data": 2}, model=own("calibrated", of_data=False))
    assert len(train(spec, root)["losses"]) == spec["steps"]
