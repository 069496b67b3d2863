"""Attention: the kernels that return their log-sum-exp against fp64, and torch's backends against each other. And what products in chunks
cost, which asynchronous tensor parallelism must hide of its messages.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from shardyard.strategies.context_parallel.attention_kernels import MATH, kernel_for
from shardyard.workers.models.attention import causal_attention

from ..checks import Check, Place, Skip
from ..plain_fsdp2 import BACKENDS
from ..report import Line, measured

#: Largest difference to fp64, in units of the dtype's rounding at the largest value.
ROUNDINGS = 8
#: How much longer the model's own call may take than the fastest backend.
SLOWER = 1.2


def checks(at: Place) -> list[Check]:
    found = []
    for shape in at.sizes.attention:
        for causal in (True, False):
            name = f"{_words(shape)}{', causal' if causal else ''}, bf16 against fp64"
            found.append(Check(name, partial(_exact, at, name, shape, causal)))
    found.append(Check("backends of scaled_dot_product_attention", lambda: _backends(at)))
    return [*found, Check("products in chunks", lambda: _chunks(at))]


def _words(shape: tuple[int, ...]) -> str:
    _, heads, key_heads, _, size = shape
    grouped = f" over {key_heads} key heads" if key_heads < heads else ""
    return f"{heads} heads of {size}{grouped}"


def _exact(at: Place, name: str, shape: tuple[int, ...], causal: bool) -> Iterable[Line]:
    """The call of the model (causal only), and the kernel that ring attention takes, forward and backward."""
    q, k, v, grad = _tensors(at, shape)
    kernel = kernel_for(q)
    group = q.shape[1] // k.shape[1]
    exact = _of_kernel(MATH, [x.double() for x in (grad, q, k, v)], causal)
    if causal:
        found = _of_model(grad, q, k, v)
        worst = max(_roundings(a, b, q.dtype) for a, b in zip(found, exact, strict=True))
        yield measured(f"model: {name}", worst, "roundings", at_most=ROUNDINGS)
    at.needs_tried_torch("a fused kernel of ring attention")
    # The fused kernels know no shared key heads: strategies repeat them before, and sum their gradients.
    wide = [x if kernel is MATH else x.repeat_interleave(group, dim=1) for x in (k, v)]
    out, of_q, of_k, of_v = _of_kernel(kernel, [grad, q, *wide], causal)
    if kernel is not MATH and group > 1:
        of_k, of_v = (x.double().unflatten(1, (-1, group)).sum(2) for x in (of_k, of_v))
    worst = max(_roundings(a, b, q.dtype) for a, b in zip((out, of_q, of_k, of_v), exact, strict=True))
    yield measured(f"kernel: {name}", worst, "roundings", at_most=ROUNDINGS)


def _tensors(at: Place, shape: tuple[int, ...]) -> list[Tensor]:
    batch, heads, key_heads, length, size = shape
    torch.manual_seed(0)
    sizes = [(batch, h, length, size) for h in (heads, key_heads, key_heads, heads)]
    return [torch.randn(each, device=at.device).bfloat16() for each in sizes]


def _of_kernel(kernel: Any, tensors: list[Tensor], causal: bool) -> list[Tensor]:
    """`tensors`: gradient of the output, queries, keys, values."""
    grad, q, k, v = tensors
    out, lse = kernel.forward(q, k, v, causal)
    return [out, *kernel.backward(grad, q, k, v, out, lse, causal)]


def _of_model(grad: Tensor, q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out = causal_attention(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


def _roundings(found: Tensor, exact: Tensor, dtype: torch.dtype) -> float:
    unit = torch.finfo(dtype).eps * exact.abs().max()
    return float((found.double() - exact).abs().max() / unit)


def _backends(at: Place) -> Iterator[Line]:
    """Forward and backward of one layer by each backend, and by what the model's call chooses."""
    at.needs_cuda("choice of backends")
    q, k, v, grad = _tensors(at, at.sizes.backends)
    seconds: dict[str, float] = {}
    for backend in BACKENDS[:-1]:  # the last holds all scores: it is no rival
        name = backend.name.lower()
        try:
            seconds[name] = _seconds(at, grad, q, k, v, backend)
        except RuntimeError as error:
            yield Line(name, None, "", None, "skipped", str(error).strip().splitlines()[0])
            continue
        yield measured(f"{name}, {_words(at.sizes.backends)}", 1e3 * seconds[name], "ms")
    if not seconds:
        raise Skip("no fused backend takes this shape")
    own, best = _seconds(at, grad, q, k, v, None), min(seconds, key=lambda name: seconds[name])
    yield measured("the model's call", 1e3 * own, "ms")
    yield measured("the model's call over the fastest", own / seconds[best], "×", at_most=SLOWER, note=best)


def _chunks(at: Place) -> Iterator[Line]:
    """A row-split layer's product, forward, in chunks of positions against all at once, by turns."""
    positions, own, width = at.sizes.row
    x, weight = (torch.randn(shape, device=at.device).bfloat16() for shape in ((positions, own), (width, own)))

    def multiply(chunks: int) -> Tensor:
        return torch.cat([F.linear(chunk, weight) for chunk in x.chunk(chunks)])

    for chunks in (2, 4, 8):
        ratios = [_took(at, partial(multiply, chunks)) / _took(at, partial(F.linear, x, weight)) for _ in range(8)]
        yield measured(f"a row of {own} × {width} in {chunks} chunks over at once", statistics.median(ratios[3:]), "×")


def _took(at: Place, run: Callable[[], object]) -> float:
    at.synchronize()
    began = time.perf_counter()
    run()
    at.synchronize()
    return time.perf_counter() - began


def _seconds(at: Place, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, backend: SDPBackend | None) -> float:
    with nullcontext() if backend is None else sdpa_kernel([backend]):
        took = [_took(at, partial(_of_model, grad, q, k, v)) for _ in range(8)]
    return statistics.median(took[3:])
