"""The optimizer's step on the host, for a share r of the P elements: gradients come down, values go up (ZeRO-Offload, 2101.06840).

Masters and moments stay on the host. In mixed precision and ZeRO-0 to 2 the param shards are those masters: 12·r·P bytes leave the
device, and per step 4·r·P bytes of gradients come down and 2·r·P bytes of rounded values go up. ZeRO-3 gathers from its param shards, so
these stay on the device, as do parameters that one dtype computes and updates: the host has copies as masters, 8·r·P bytes of
moments leave the device, and 4·r·P bytes of values go up.

The elements are in buckets of bounded size, however large a param shard is. While bucket i is updated, the gradients of bucket i+1 come
down on one side stream, and the values of bucket i−1 go up on another. Each direction has two pinned buffers, which are allocated once,
or one if there is one bucket. The host waits for the arrival of a bucket's gradients, which it reads, and for nothing else.

Between steps masters and moments are in a `StateHome`: in host memory, or on a local disk (`disk_home.py`), from which a step reads and
to which it writes them bucket by bucket. A disk does not keep values that the device has as precisely: they come down with the gradients.
Values that are in the home alone, as parameters on a disk are, stay there.

If the device is a CPU, the path is the same: the copy then costs memory and frees none.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch.optim import Optimizer

from ..memory_options import OFFLOAD_BUCKET_BYTES
from ..param_shard import ParamShard, with_elements
from .copy_lane import CopyLane, Done
from .state_home import StateHome

HOST: Final = torch.device("cpu")
#: Parts of a param shard begin at multiples of this many elements: the vectorised step then rounds as it does for the whole.
STRIDE: Final = 4096
#: Buffers per direction, if there are as many buckets.
_BUFFERS: Final = 2

Make = Callable[[Sequence[ParamShard]], Optimizer]


class HostOptimizer(Optimizer):
    """An optimizer over `shards` that updates a `share` (0 to 1, of the elements) of them on the host.

    Shards without an element only count in the choice: it is the same on all ranks with the same parameters.

    `make` returns the optimizer for a list of param shards. The attributes that other code reads keep their meaning: `state` by
    shard, `param_groups` of all. The host's masters follow only this optimizer's steps: call `values_changed` after any other change.
    """

    def __init__(
        self,
        shards: Sequence[ParamShard],
        share: float,
        make: Make,
        bucket_bytes: int = OFFLOAD_BUCKET_BYTES,
        home: StateHome | None = None,
    ) -> None:
        """`home`: where the state is between steps; by default in host memory. Raises what it raises."""
        self._home = home or StateHome()
        moved = {number for number, shard in enumerate(shards) if shard.on_device is not None} or pick(shards, share)
        stay = with_elements([shard for number, shard in enumerate(shards) if number not in moved])
        go = with_elements([shards[number] for number in sorted(moved)])
        self._resident = make(stay) if stay or not go else None  # without param shards it counts updates
        self._masters = [_Master(shard, self._home) for shard in go]
        self._buckets = self._opened(bucket_bytes, make)
        inner = [*([self._resident] if self._resident else []), *(bucket.optimizer for bucket in self._buckets)]
        super().__init__([group for optimizer in inner for group in optimizer.param_groups], {})
        if self._resident is not None:
            self.state.update(self._resident.state)
        for master in self._masters:
            self.state[master.shard.tensor] = master.state
        device = self._masters[0].target.device if self._masters else HOST
        self._down, self._up = CopyLane(device), CopyLane(device)
        self._gradients = self._buffers([bucket.bytes_down for bucket in self._buckets], device)
        self._values = self._buffers([bucket.bytes_up for bucket in self._buckets], device)
        self._sent = [Done(None) for _ in self._values]  # of the values in each buffer
        self._stale = True

    def _opened(self, bucket_bytes: int, make: Make) -> list["_Bucket"]:
        """The buckets, with their places in this optimizer's home."""
        parts = [part for master in self._masters for part in _parts(master, bucket_bytes)]
        buckets = _buckets(parts, bucket_bytes)
        each = 1 + _state_tensors(make, parts[0].master.shard) if parts else 1
        self._home.open([[part.values.nbytes for part in some for _ in range(each)] for some in buckets])
        return [_Bucket(number, some, make, self._home) for number, some in enumerate(buckets)]

    def _buffers(self, sizes: Sequence[int], device: torch.device) -> list[torch.Tensor]:
        """The buffers of one direction, for buckets of these sizes in bytes."""
        most, pinned = max(sizes, default=0), device.type == "cuda"
        return [torch.empty(most, dtype=torch.uint8, pin_memory=pinned) for _ in sizes[:_BUFFERS]]

    def values_changed(self) -> None:
        """The param shards or the counts of updates were set from elsewhere: the next step reads them first."""
        self._stale = True

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all param shards from their gradients. Raises what the state's home raises; the state is then lost."""
        assert closure is None
        if self._resident is not None:
            self._resident.step()
        self._down.after_current()
        self._up.after_current()
        if not self._buckets:
            return
        if self._stale:
            self._refill()
        self._home.begin()
        arrived = [self._fetch(number) for number in range(min(_BUFFERS, len(self._buckets)))]
        for number, bucket in enumerate(self._buckets):
            arrived[number].wait_on_host()
            self._home.arrive(number)
            bucket.update(self._gradients[number % _BUFFERS])
            self._home.leave(number)
            if number + _BUFFERS < len(self._buckets):
                arrived.append(self._fetch(number + _BUFFERS))
            self._send(number)
            self._home.follow(number)
        self._home.end()
        for sent in self._sent:
            sent.wait_on_device()
        for master in self._masters:
            master.updated()

    def _refill(self) -> None:
        for master in self._masters:
            if master.values is not master.shard.tensor and not master.values.is_meta:
                master.values.copy_(master.shard.tensor)
            master.set_counts()
            for tensor in master.whole():
                self._home.changed(tensor)
        self._stale = False

    def _fetch(self, number: int) -> Done:
        """Start to copy a bucket's gradients down. Their buffer is free: the bucket that had it is updated."""
        bucket, buffer = self._buckets[number], self._gradients[number % _BUFFERS]
        return self._down.run(lambda: bucket.fetch(buffer))

    def _send(self, number: int) -> None:
        """Start to copy a bucket's values up, through a buffer that may still be on its way."""
        bucket, place = self._buckets[number], number % _BUFFERS
        buffer = self._values[place]
        self._sent[place].wait_on_host()
        bucket.pack(buffer)
        self._sent[place] = self._up.run(lambda: bucket.send(buffer))


class _Master:
    """A param shard's values and optimizer state in `home`. `state` has whole tensors, as others read it.

    `values` are on the meta device if the home does not keep them: then they are those of `target`. If they are in the home alone, they
    are the `target`, too.
    """

    def __init__(self, shard: ParamShard, home: StateHome) -> None:
        self.shard, self._home = shard, home
        if shard.on_device is None and home.holds(shard.tensor):
            self.target = self.values = shard.tensor
        elif shard.on_device is None:
            self.target, self.values = shard.tensor, home.copy_like(shard.tensor)
        else:
            self.target, self.values = shard.on_device.value, shard.tensor
            kept = home.kept(shard.tensor)
            if kept is not shard.tensor:
                shard.tensor.data = kept  # the data strategy has the same tensor
        self.state: dict[str, torch.Tensor] = {}
        self.parts: list[dict[str, torch.Tensor]] = []  # the state of each part

    @property
    def is_sent(self) -> bool:
        """Whether the target is elsewhere, so that an update is copied to it."""
        return self.target is not self.values

    def adopt(self, part: "_Part", state: dict[str, torch.Tensor], bucket: int) -> None:
        """Let the `state` of a part, which is that of a single number, be part of this one: whole, and cut for `bucket`."""
        for key, value in state.items():
            if _is_moment(key, value):
                if key not in self.state:
                    self.state[key] = self._home.zeros_like(self.values)
                state[key] = self._home.place(bucket, part.of(self.state[key]))
            else:
                self.state.setdefault(key, value.clone())
        self.parts.append(state)

    def whole(self) -> list[torch.Tensor]:
        """What the home keeps: the values, and the state that has their shape."""
        state = [value for value in self.state.values() if value.shape == self.values.shape]
        return state if self.values.is_meta else [self.values, *state]

    def updated(self) -> None:
        """Take over the number of updates. The device has the new values."""
        if self.shard.on_device is not None:
            self.shard.on_device.is_new = True
        if "step" in self.state:
            self.state["step"].copy_(self.parts[0]["step"])

    def set_counts(self) -> None:
        for part in self.parts if "step" in self.state else ():
            part["step"].copy_(self.state["step"])


@dataclass(frozen=True, eq=False)
class _Part:
    """Elements `start` to `start + length` of a param shard in the order of its memory; all of them if `length` is None."""

    master: _Master
    start: int = 0
    length: int | None = None

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """This part of a tensor of the shard's shape, as a view."""
        return tensor if self.length is None else tensor.view(-1).narrow(0, self.start, self.length)

    @property
    def values(self) -> torch.Tensor:
        return self.of(self.master.values)


class _Bucket:
    """Some parts, with an optimizer over the host's values, where `home` has them during a step."""

    def __init__(self, number: int, parts: Sequence[_Part], make: Make, home: StateHome) -> None:
        self._parts = list(parts)
        self._values = [home.place(number, part.values) for part in parts]
        self.optimizer = self._made(number, make)
        self._targets = [part.of(part.master.target) for part in parts]
        self._starts = _starts(self._values)
        size = self._starts[-1] + self._values[-1].nbytes
        self._second = _aligned(size) if any(part.values.is_meta for part in parts) else 0
        self.bytes_down = self._second + size
        self.bytes_up = size if any(part.master.is_sent for part in parts) else 0

    def _made(self, number: int, make: Make) -> Optimizer:
        """The optimizer of bucket `number` over the values.

        It is made over single numbers, so that it allocates no state of its own: freed blocks of a bucket's size would leave gaps in the
        heap that no other fits.
        """
        ones = [torch.zeros(1, dtype=values.dtype, device=HOST) for values in self._values]
        shards = [part.master.shard for part in self._parts]
        found = make([shard.like(shard.name, one) for shard, one in zip(shards, ones, strict=True)])
        real = {id(one): values for one, values in zip(ones, self._values, strict=True)}
        for group in found.param_groups:
            group["params"] = [real[id(one)] for one in group["params"]]
        for part, one in zip(self._parts, ones, strict=True):
            state = found.state[real[id(one)]] = found.state.pop(one)
            part.master.adopt(part, state, number)
        return found

    def _in(self, buffer: torch.Tensor, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Places in a buffer of bytes for `tensors`, one per part, in their memory order, which a fused step relies on."""
        places = zip(self._starts, tensors, strict=True)
        return [buffer[start : start + t.nbytes].view(t.dtype).as_strided(t.shape, t.stride()) for start, t in places]

    def fetch(self, buffer: torch.Tensor) -> None:
        """Copy down the gradients, and behind them the values that the home does not keep."""
        for part, _, place in self._that_come(buffer):
            place.copy_(part.of(part.master.target), non_blocking=True)
        for part, place in zip(self._parts, self._in(buffer, self._values), strict=True):
            gradient = part.master.shard.gradient
            if gradient is not None:
                whole = gradient if part.length is None else gradient.contiguous()
                place.copy_(part.of(whole), non_blocking=True)

    def _that_come(self, buffer: torch.Tensor) -> list[tuple[_Part, torch.Tensor, torch.Tensor]]:
        """Each part whose values come with the gradients: where the step computes with them, and where they arrive."""
        if not self._second:
            return []
        places = self._in(buffer[self._second :], self._values)
        return [one for one in zip(self._parts, self._values, places, strict=True) if one[0].values.is_meta]

    def update(self, fetched: torch.Tensor) -> None:
        """Update the values, by what was fetched into this buffer."""
        for _, values, place in self._that_come(fetched):
            values.copy_(place)
        for part, values, place in zip(self._parts, self._values, self._in(fetched, self._values), strict=True):
            values.grad = None if part.master.shard.gradient is None else place
        self.optimizer.step()
        for values in self._values:
            values.grad = None

    def pack(self, buffer: torch.Tensor) -> None:
        """Round the values to the dtype in which the device has them."""
        for values, _, place in self._that_go(buffer):
            place.copy_(values)

    def send(self, buffer: torch.Tensor) -> None:
        for _, target, place in self._that_go(buffer):
            target.copy_(place, non_blocking=True)

    def _that_go(self, buffer: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Each part whose values are sent: where the step computes with them, their target, and their place in `buffer`."""
        if not self.bytes_up:
            return []
        places = self._in(buffer, self._targets)
        every = zip(self._parts, self._values, self._targets, places, strict=True)
        return [(values, target, place) for part, values, target, place in every if part.master.is_sent]


def _state_tensors(make: Make, shard: ParamShard) -> int:
    """How many tensors of a param shard's own shape the optimizer keeps for it."""
    one = torch.zeros(1)
    state = make([shard.like(shard.name, one)]).state[one]
    return sum(_is_moment(key, value) for key, value in state.items())


def _is_moment(key: str, value: torch.Tensor) -> bool:
    """Whether state of a single number has a number for each element of a param shard."""
    return key != "step" and value.shape == (1,)


def _starts(tensors: Sequence[torch.Tensor]) -> list[int]:
    """The first byte of each tensor in a buffer, aligned to 64 bytes."""
    found, start = [], 0
    for tensor in tensors:
        found.append(start)
        start += _aligned(tensor.nbytes)
    return found


def _aligned(size: int) -> int:
    return -(-size // 64) * 64


def _parts(master: _Master, limit: int) -> list[_Part]:
    """The param shard in parts of at most `limit` bytes; whole if it is smaller, or not one piece of memory."""
    tensor, one_piece = master.values, master.values.is_contiguous() and master.target.is_contiguous()
    length = max(STRIDE, limit // tensor.itemsize // STRIDE * STRIDE)
    if tensor.numel() <= length or not one_piece:
        return [_Part(master)]
    return [_Part(master, start, min(length, tensor.numel() - start)) for start in range(0, tensor.numel(), length)]


def pick(shards: Sequence[ParamShard], share: float) -> set[int]:
    """Indices of the param shards that go to the host: in order, as many as fit in `share` of all elements.

    Whole parameters are counted, also those without an element here: ranks whose parts of some are unequal choose the same, and the copies
    that they have of others stay equal. Only with a share of 1 a single number goes to the host: ZeRO-3 gives all ranks a copy.
    """
    sizes = [math.prod(shard.shape) for shard in shards]
    room = share * sum(sizes)
    picked = set()
    for number, size in enumerate(sizes):
        if size <= room and (size > 1 or share == 1):
            picked.add(number)
            room -= size
    return picked


def _buckets(parts: Sequence[_Part], limit: int) -> list[list[_Part]]:
    """The parts in order, in buckets of at most `limit` bytes."""
    buckets: list[list[_Part]] = []
    room = 0
    for part in parts:
        size = part.values.nbytes
        if not buckets or size > room:
            buckets.append([])
            room = limit
        buckets[-1].append(part)
        room -= size
    return buckets
