"""Attention over the ranks of a context group, compared with attention over the whole sequence in one place."""

import functools
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from harness.ranks import group, spawn


def heads(kv_heads: int, sequence: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q, k, v and a gradient of the output: two sequences, four heads of size 6."""
    generator = torch.Generator().manual_seed(kv_heads)
    shapes = ((2, 4, sequence, 6), (2, kv_heads, sequence, 6), (2, kv_heads, sequence, 6), (2, 4, sequence, 6))
    q, k, v, grad = (torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes)
    return q, k, v, grad


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = True, starts: Tensor | None = None) -> Tensor:
    """Torch's attention, with the key/value heads repeated for each head of q; with `starts` [2, sequence] within documents."""
    keys, values = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    if starts is None:
        return functional.scaled_dot_product_attention(q, keys, values, is_causal=causal)
    meets = (starts.unsqueeze(2) == starts.unsqueeze(1)).unsqueeze(1)
    return functional.scaled_dot_product_attention(q, keys, values, attn_mask=meets.tril() if causal else meets)


def whole(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, causal: bool = True) -> list[Tensor]:
    """Output and gradients of q, k and v by torch's attention."""
    inputs = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    out = attention(*inputs, causal=causal)
    out.backward(grad)
    return [out.detach(), *(x.grad for x in inputs)]


#: Where the documents of both sequences end, in 24ths of a sequence.
ENDS = ((5, 6, 13, 24), (1, 16, 24))


def document_slices(row: int, sequence: int) -> list[slice]:
    """The documents of one of the two sequences."""
    ends = [end * sequence // 24 for end in ENDS[row]]
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def document_starts(sequence: int) -> Tensor:
    """At which place the document of each position starts, [2, sequence]."""
    found = torch.zeros(2, sequence, dtype=torch.int64)
    for row in (0, 1):
        for part in document_slices(row, sequence):
            found[row, part] = part.start
    return found


def each_alone(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, causal: bool = True) -> list[Tensor]:
    """As `whole`, where torch's attention computes each document by itself: no mask but the causal one."""
    found = [torch.full_like(x, torch.nan) for x in (q, q, k, v)]
    for row in (0, 1):
        for part in document_slices(row, q.shape[2]):
            alone = whole(*(x[row : row + 1, :, part] for x in (q, k, v, grad)), causal=causal)
            for into, value in zip(found, alone, strict=True):
                into[row, :, part] = value[0]
    return found


def context_differences(rank: int, world: int, port: int, cases: list[dict[str, Any]]) -> list[list[float]]:
    """For each case (layout, kv_heads, kernel), this rank's largest differences: output, gradients of q, k and v.

    A case's layout has `context: world`, and what it has under "layout". With "packed" sequences hold documents.
    """
    from shardyard.strategies.layout import Layout
    from shardyard.strategies.mesh import make_mesh

    device = group(rank, world, port)
    found = []
    for case in cases:
        mesh = make_mesh(Layout.model_validate({"context": world, **case.get("layout", {})}), device)
        found.append(_difference(mesh, case))
    return found


def _difference(mesh: Any, case: dict[str, Any]) -> list[float]:
    from shardyard.strategies.context_parallel import attention_kernels
    from shardyard.strategies.context_parallel.apply import positions_of, spread
    from shardyard.strategies.context_parallel.packed_attention import packed_attention

    dtype = getattr(torch, case.get("dtype", "float64"))
    everything = heads(case["kv_heads"], case.get("sequence", 24), dtype)
    mine = positions_of(mesh.layout, mesh.index("context"), everything[0].shape[2])
    q, k, v, grad = (x[:, :, mine].clone() for x in everything)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    kernel = getattr(attention_kernels, case["kernel"])

    causal = case.get("causal", True)
    attend = functools.partial(attention, causal=causal)
    packed = {"starts": document_starts(everything[0].shape[2])} if case.get("packed") else {}
    out = spread(packed_attention if packed and causal else attend, mesh, kernel, causal)(*inputs, **packed)
    out.backward(grad)
    ours = [out.detach(), *(x.grad for x in inputs)]
    alike = each_alone if packed else whole
    expected = alike(*(x.double() for x in everything), causal=causal)
    return [(a.double() - b[:, :, mine]).abs().max().item() for a, b in zip(ours, expected, strict=True)]


def worst_differences(world: int, cases: list[dict[str, Any]]) -> list[list[float]]:
    """Of each case, the largest difference on any rank."""
    ranks = spawn(context_differences, world, cases)
    return [[max(values) for values in zip(*of_case, strict=True)] for of_case in zip(*ranks, strict=True)]
