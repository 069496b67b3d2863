"""Gradient buckets: parameters grouped in the order in which backward finishes them, so that sending overlaps with computing.

A bucket is sent when all of its gradients have arrived, and buckets are always sent in the same order: ranks never disagree on
which collective comes next (Li et al., 2006.15704, section 3.2). As soon as backward has made a gradient, it is copied into its
bucket, in the bucket's dtype, and dropped: a second copy of all gradients never exists. A large parameter has its own bucket, and
its new value arrives in its own memory. In the compute dtype its gradient is not copied at all, unless its memory is shared: it is the
bucket.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from ..mesh import Mesh
from ..param_shard import Parameter
from .shared_gradients import unshare


def fill_buckets(parameters: Sequence[Parameter], element_bytes: int, limit: int) -> list[list[Parameter]]:
    """Group parameters, last used first, into buckets of at most `limit` bytes, in the order in which backward completes them.

    A parameter of half the limit or more has its own bucket. Ranks whose parts are of unequal sizes make the same buckets. The
    parameters of a bucket have the same `replicas`, because a bucket is one message on that axis.
    """
    buckets: list[list[int]] = []
    filling: dict[str, list[int]] = {}
    room: dict[str, int] = {}
    backward = list(reversed(parameters))
    for number, parameter in enumerate(backward):
        axis, size = parameter.replicas, parameter.most * element_bytes
        if 2 * size >= limit:
            buckets.append([number])
            continue
        if axis not in filling or size > room[axis]:
            filling[axis], room[axis] = [], limit
            buckets.append(filling[axis])
        filling[axis].append(number)
        room[axis] -= size
    return [[backward[number] for number in bucket] for bucket in sorted(buckets, key=max)]


def chunk(tensor: torch.Tensor, parts: int, index: int) -> tuple[int, int, int]:
    """Rows per chunk, and first row and number of rows of chunk `index`, as `torch.chunk` splits dimension 0."""
    rows = tensor.shape[0]
    size = -(-rows // parts)
    start = min(index * size, rows)
    return size, start, min(size, rows - start)


class Bucket:
    """A matrix [parts, width] whose row r is the concatenation of every parameter's chunk r, padded to equal size.

    `rows` holds gradients from the first arrival until `clear`. For a single parameter that needs no padding, `rows` is the gradient
    itself, if it has their `dtype` (default: the parameters'). Other rows stay allocated if gradients may `stay`: newly allocated
    memory costs a page fault per 4 KiB.
    """

    def __init__(
        self, parameters: Sequence[Parameter], parts: int, stay: bool = False, dtype: torch.dtype | None = None
    ) -> None:
        self.parameters, self.parts, self._stay = list(parameters), parts, stay
        self.replicas = self.parameters[0].replicas
        self._locals = [p.local for p in self.parameters]
        self._dtype = dtype or self._locals[0].dtype
        self._wide = self._dtype != self._locals[0].dtype
        self._partial: dict[int, DTensor] = {}  # sums over micro-batches, still partial over the tensor axis
        self.widths = [chunk(t, parts, 0)[0] * (t.numel() // max(1, t.shape[0])) for t in self._locals]
        self.width = sum(self.widths)
        self._starts = [sum(self.widths[:i]) for i in range(len(self.widths))]
        self.rows: torch.Tensor | None = None
        self._filled = [False] * len(self.parameters)
        self._swapped: tuple[torch.Tensor | None, list[bool]] = (None, [False] * len(self.parameters))  # see `swap`
        self._whole = self._only_parameter()

    def swap(self) -> None:
        """Exchange what was summed so far with what the call before set aside: at first nothing."""
        self._swapped, (self.rows, self._filled) = (self.rows, self._filled), self._swapped

    def drop_swapped(self) -> None:
        """Forget what `swap` set aside."""
        self._swapped = (None, [False] * len(self.parameters))

    def _only_parameter(self) -> torch.Tensor | None:
        """The memory of the bucket's parameter as rows, if it is alone and needs no padding."""
        first, *more = self._locals
        if more or not first.is_contiguous() or first.numel() != self.parts * self.width:
            return None
        return first.view(self.parts, self.width)

    @property
    def landing(self) -> torch.Tensor | None:
        """The memory into which gathered values may be received: the bucket's only parameter, or between steps the rows that stay.

        None if there is none.
        """
        if self._whole is not None or self.rows is None:
            return self._whole
        values = self.rows.view(-1).view(self._locals[0].dtype)  # only as many bytes as the values need
        return values[: self.rows.numel()].view(self.rows.shape)

    @property
    def bytes(self) -> int:
        partial = sum(own_bytes(grad) for grad in self._partial.values())
        return partial + sum(rows.nbytes for rows in (self.rows, self._swapped[0]) if rows is not None)

    def group(self, mesh: Mesh) -> dist.ProcessGroup | None:
        """Who shares the bucket; None: this rank alone, as with experts of which no other rank has a copy."""
        return mesh.group(self.replicas) if self.parts > 1 else None

    def take(self, number: int, last: bool) -> None:
        """Move gradient `number` in, or add it.

        If it is still partial over the tensor axis, it is kept aside until the last micro-batch.
        """
        parameter = self.parameters[number]
        grad = parameter.value.grad
        if self._wide and (number in self._partial or _is_partial(parameter, grad)):
            grad = self._partial_sum(number, grad)
        if grad is None:
            return
        adopts = self._whole is not None and self.rows is None and not self._wide
        stays = not last and _is_partial(parameter, grad)  # until the next micro-batch's is added to it in place
        if stays or adopts:
            unshare(parameter.value)
        if stays:
            return
        plain = parameter.local_gradient(grad)
        self._partial.pop(number, None)
        if self._whole is not None and adopts:
            self.rows, self._filled = plain.reshape(self._whole.shape).contiguous(), [True]
        else:
            self._put(number, plain.reshape(-1))
        parameter.value.grad = None

    def _partial_sum(self, number: int, grad: torch.Tensor | None) -> DTensor:
        """The sum so far of a parameter's partial gradients, with `grad`, in the bucket's dtype."""
        if isinstance(grad, DTensor):
            local = grad.to_local()
            if number in self._partial:
                self._partial[number].to_local().add_(local)
            else:
                self._partial[number] = DTensor.from_local(
                    local.to(self._dtype), grad.device_mesh, grad.placements, shape=grad.shape, stride=grad.stride()
                )
            self.parameters[number].value.grad = None
        return self._partial[number]

    def _put(self, number: int, flat: torch.Tensor) -> None:
        slot = self._slot(number)
        width = self.widths[number]
        full = flat.numel() // width if width else 0
        if not self._filled[number]:
            slot[:full].copy_(flat[: full * width].view(full, width))
            if full < self.parts:
                slot[full:].zero_()
                slot[full, : flat.numel() - full * width].copy_(flat[full * width :])
        else:
            slot[:full].add_(flat[: full * width].view(full, width))
            if full < self.parts:
                slot[full, : flat.numel() - full * width].add_(flat[full * width :])
        self._filled[number] = True

    def _slot(self, number: int) -> torch.Tensor:
        if self.rows is None:
            like = self._locals[0]
            self.rows = torch.empty(self.parts, self.width, dtype=self._dtype, device=like.device)
        return self.rows.narrow(1, self._starts[number], self.widths[number])

    def finish(self) -> torch.Tensor:
        """All gradients of the bucket; zeros for parameters that had no part in the loss."""
        for number in range(len(self.parameters)):
            self.take(number, last=True)
            if not self._filled[number]:
                self._slot(number).zero_()
        assert self.rows is not None
        return self.rows

    def clear(self) -> None:
        self._filled = [False] * len(self.parameters)
        if not self._stay or (self._whole is not None and not self._wide):
            self.rows = None

    def spread(self, rows: torch.Tensor) -> None:
        """Copy the new values from the gathered `rows` into every parameter. Does nothing if they were received in the parameter."""
        if rows is self._whole:
            return
        for local, start, width in zip(self._locals, self._starts, self.widths, strict=True):
            columns = rows.narrow(1, start, width)
            if local.numel() == columns.numel():
                local.view(columns.shape).copy_(columns)
            else:
                local.copy_(columns.reshape(-1)[: local.numel()].view_as(local))


def own_bytes(grad: torch.Tensor) -> int:
    """Bytes that this rank holds of a gradient, which may be sharded over the tensor axis."""
    plain = grad.to_local() if isinstance(grad, DTensor) else grad
    return plain.numel() * plain.element_size()


def _is_partial(parameter: Parameter, grad: torch.Tensor | None) -> bool:
    if not isinstance(grad, DTensor):
        return False
    assert isinstance(parameter.value, DTensor)
    return grad.placements != parameter.value.placements


class BucketOrder:
    """Fills buckets as backward makes gradients, and calls `send(i)` for bucket 0, 1, … as they complete.

    A bucket is complete when all its gradients are final: after the pass that `arm` calls the last one, or under a pipeline after those
    that are run inside `finishing`. `flush` sends the gradients that no pass announced. With `always`, every backward pass fills buckets,
    even without a call of `arm` before it.
    """

    def __init__(self, buckets: Sequence[Bucket], send: Callable[[int], None], always: bool = False) -> None:
        self._buckets, self._send, self._always = buckets, send, always
        self._armed, self.sending = always, False
        self._places = {
            parameter.value: (number, index)
            for number, bucket in enumerate(buckets)
            for index, parameter in enumerate(bucket.parameters)
        }
        self._begin()
        for value, place in self._places.items():
            value.register_post_accumulate_grad_hook(self._hook(*place))

    def _begin(self) -> None:
        """No gradient is final."""
        self._next = 0
        self._final: set[tuple[int, int]] = set()  # those that the current pass makes so
        self._awaited = [set(range(len(bucket.parameters))) for bucket in self._buckets]

    def _hook(self, number: int, index: int) -> Callable[[torch.Tensor], None]:
        bucket = self._buckets[number]

        def ready(value: nn.Parameter) -> None:
            last = self.sending or (number, index) in self._final
            if not (self._armed or last):
                unshare(value)
                return
            with torch.no_grad():
                bucket.take(index, last)
                if last:
                    self._awaited[number].discard(index)
                    self._send_ready()

        return ready  # type: ignore[return-value]

    def _send_ready(self) -> None:
        while self._next < len(self._buckets) and not self._awaited[self._next]:
            self._send(self._next)
            self._next += 1

    def arm(self, sending: bool) -> None:
        """Let the next backward pass fill buckets, and send them if `sending`."""
        self._armed, self.sending = True, sending
        self._begin()

    @contextmanager
    def finishing(self, values: Iterable[nn.Parameter]) -> Iterator[None]:
        """Around a pass that makes the gradients of `values` final, while others still grow.

        A gradient that a hook announces is sent during the pass, another one at its end.
        """
        places = {self._places[value] for value in values if value in self._places}
        self._final = places
        yield
        self._final = set()
        for number, index in places:
            self._awaited[number].discard(index)
        with torch.no_grad():
            self._send_ready()

    @torch.no_grad()
    def flush(self) -> None:
        """Send the buckets that are left (parameters without gradient, schedules that bypass hooks) and disarm."""
        while self._next < len(self._buckets):
            self._send(self._next)
            self._next += 1
        self._armed, self.sending = self._always, False
        self._begin()

    @torch.no_grad()
    def collect(self) -> None:
        """After a pass that bypasses hooks: fill buckets from the parameters' gradients, if every pass is to fill."""
        if not self._always:
            return
        for bucket in self._buckets:
            for index in range(len(bucket.parameters)):
                bucket.take(index, last=False)
