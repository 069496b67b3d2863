"""What workers and their parameter servers hold and send, by formula (`data_parallel/parameter_server.py`). Imports no torch.

With N workers, k servers, and Ψ_s parameters on a server, about Ψ/k; c, m and g are the bytes of an element in the compute dtype, of
one that is kept, and of a sum of gradients:

| rank | parameters | gradients | optimizer | sent per step | received per step |
|---|---|---|---|---|---|
| worker | cΨ | gΨ | an update counter | gΨ | cΨ |
| server | – | mΨ_s | 3mΨ_s with AdamW | N·cΨ_s | N·gΨ_s |

Where workers have clocks of their own, each also sends two requests to every server. A server holds memory for the gradients of every
worker, NgΨ_s, from which it updates, and at most N copies of its values, NcΨ_s, for workers that have not received them yet.
"""

from collections.abc import Sequence

from ..data_parallel.key_assignment import REQUEST_NUMBERS, held
from .estimate import Setting
from .model_shape import elements

#: Bytes of an update counter.
_COUNTER = 4


def keys(setting: Setting) -> list[list[int]]:
    """The numbers of elements of the parameters that each server holds."""
    return held([weight.elements for weight in setting.decoder.held(setting.layout, 0)], setting.layout.servers)


def most_elements(setting: Setting) -> int:
    """Ψ_s of the fullest server."""
    return max(map(sum, keys(setting)))


def state_bytes(setting: Setting, sizes: Sequence[int]) -> int:
    """Bytes of the values and the optimizer's state of a server whose parameters have these sizes."""
    counters = _COUNTER * len(sizes) if setting.counted else 0
    return (1 + setting.moments) * setting.master * sum(sizes) + counters


def message_bytes(setting: Setting) -> int:
    """Most bytes of messages that a server receives at a time: `prefetch` of every worker, each a bucket or one parameter."""
    largest = max(weight.elements for weight in setting.decoder.held(setting.layout, 0)) * setting.gradients
    everything = most_elements(setting) * setting.gradients
    return setting.layout.data * min(setting.prefetch * max(setting.bucket_bytes, largest), everything)


def copies_bytes(setting: Setting) -> int:
    """Most bytes that the fullest server holds for workers with clocks of their own: copies of its values, and their gradients.

    Without those that it updates from, where they are in the dtype of the values.
    """
    updating = setting.master * (setting.gradients == setting.master)
    return (setting.layout.data * (setting.compute + setting.gradients) - updating) * most_elements(setting)


def requested(setting: Setting) -> int:
    """fp64 numbers in the requests that a worker with a clock of its own sends in a step."""
    return 2 * setting.layout.servers * REQUEST_NUMBERS


def pushed(setting: Setting) -> int:
    """Elements that a worker sends in a step; it receives as many."""
    return elements(setting.decoder.held(setting.layout, 0))
