"""What ZeRO++ sends and holds, by formula (2306.10209, sections 4 and 5). Imports no torch.

With N ranks over which ZeRO shards, and M the length of a rank's message of its shards (of unquantised weights Ψ/N numbers, else bytes):

- a step's first gather of the weights sends M(N−1), and so does every other one without a secondary shard; with one in groups of S ranks
  the others send NM(S−1)/S inside them.
- quantised gradients leave a node of q ranks as M(N/q − 1), after NM(q−1)/q inside it; without nodes as M(N−1). ZeRO-3, and ZeRO-2
  without a pipeline, send them with each micro-batch.
- a message of n numbers has one byte or half a byte for each, and a scale for each block: 4 bytes, 8 of fp64.
- a secondary shard takes NM/S until the update.
"""

from collections.abc import Iterator, Sequence

from ..zero_plus_plus import BITS
from .estimate import Setting
from .grid_traffic import Part
from .model_shape import Weight, chunks, elements

#: Length of a message, and bytes of each of its elements.
_Message = tuple[int, int]


def gathered(setting: Setting, held: Sequence[Weight]) -> Iterator[Part]:
    """Weights, over all ranks that shard them."""
    (length, size), n = _of_weights(setting, held), setting.cut
    times = 1 if _secondary(setting) else _gathers(setting)
    yield Part("all_gather", f"{_turns(times)}M(N−1)", times * length * (n - 1), size)


def gathered_inside(setting: Setting, held: Sequence[Weight]) -> Iterator[Part]:
    """Weights, in the group of a secondary shard."""
    (length, size), group = _of_weights(setting, held), _secondary(setting)
    if group:
        times = _gathers(setting) - 1
        yield Part("all_gather", f"{_turns(times)}NM(S−1)/S", times * setting.cut * length * (group - 1) / group, size)


def reduced(setting: Setting, held: Sequence[Weight]) -> Iterator[Part]:
    """Quantised gradients, over all ranks at once."""
    if not _node(setting):
        times = _reductions(setting)
        length = times * _of_gradients(setting, held) * (setting.cut - 1)
        yield Part("all_to_all", f"{_turns(times)}M(N−1)", length, 1)


def reduced_inside(setting: Setting, held: Sequence[Weight]) -> Iterator[Part]:
    """The same in a node."""
    times, node = _reductions(setting), _node(setting)
    length = times * setting.cut * _of_gradients(setting, held) * (node - 1) / node
    yield Part("all_to_all", f"{_turns(times)}NM(q−1)/q", length, 1)


def reduced_across(setting: Setting, held: Sequence[Weight]) -> Iterator[Part]:
    """The same between nodes."""
    times, node = _reductions(setting), _node(setting)
    length = times * _of_gradients(setting, held) * (setting.cut // node - 1)
    yield Part("all_to_all", f"{_turns(times)}M(N/q−1)", length, 1)


def secondary_bytes(setting: Setting, weights: Sequence[Weight]) -> float:
    """Bytes of a rank's secondary shard of `weights`; 0 without one."""
    (length, size), group = _of_weights(setting, weights), _secondary(setting)
    return setting.cut * length * size / group if group else 0


def working_bytes(setting: Setting, numbers: int) -> float:
    """Bytes beside values and gradients while `numbers` of them are gathered, or their gradients quantised in the master's dtype."""
    given = setting.layout.zero_plus_plus
    if given is None:
        return 0
    codes = 1 if given.weights else 0
    quotients = setting.master + 1 + BITS[given.gradients] / 8 - setting.compute if given.gradients else 0
    return numbers * (codes + max(0, quotients))


def encoding_bytes(setting: Setting, weights: Sequence[Weight]) -> float:
    """Bytes beside gradients in both dtypes while those of `weights` are quantised at the end of a backward pass: divided, and as codes.

    Where not all shards are whole blocks, also filled up to them (`quantized_blocks.py`).
    """
    given = setting.layout.zero_plus_plus
    if given is None or given.gradients is None:
        return 0
    filled = any(weight.chunk(setting.cut) % given.block for weight in weights)
    return (setting.master * (1 + filled) + 1) * elements(weights)


def message_bytes(setting: Setting) -> int:
    """Bytes of each number that is gathered, until it is among the values: of its message, or of its code, that unpacked, and its value."""
    given = setting.layout.zero_plus_plus
    return setting.compute if given is None or given.weights is None else 2 + max(4, setting.compute)


def quantises_gradients(setting: Setting) -> bool:
    """Whether gradients are sent in few bits."""
    return setting.layout.zero_plus_plus is not None and setting.layout.zero_plus_plus.gradients is not None


def changes_gathers(setting: Setting) -> bool:
    """Whether weights are gathered in another way than ZeRO-3's."""
    given = setting.layout.zero_plus_plus
    return given is not None and (given.weights is not None or given.secondary is not None)


def _of_weights(setting: Setting, weights: Sequence[Weight]) -> _Message:
    given = setting.layout.zero_plus_plus
    if given is None or given.weights is None:
        return chunks(weights, setting.cut), setting.compute
    return _length(setting, weights, BITS[given.weights], setting.compute), 1


def _of_gradients(setting: Setting, weights: Sequence[Weight]) -> int:
    given = setting.layout.zero_plus_plus
    assert given is not None and given.gradients is not None
    size = setting.master if setting.layout.zero == 3 else setting.sent
    return _length(setting, weights, BITS[given.gradients], size)


def _length(setting: Setting, weights: Sequence[Weight], bits: int, size: int) -> int:
    """Bytes of the message of a rank's shards of `weights`, whose numbers have `size` bytes before."""
    given = setting.layout.zero_plus_plus
    assert given is not None
    shards = [weight.chunk(setting.cut) for weight in weights]
    return sum(-(-shard * bits // 8) + max(4, size) * -(-shard // given.block) for shard in shards)


def _secondary(setting: Setting) -> int:
    given = setting.layout.zero_plus_plus
    return 0 if given is None else given.secondary or 0


def _node(setting: Setting) -> int:
    given = setting.layout.zero_plus_plus
    return 0 if given is None else given.gradient_node or 0


def _gathers(setting: Setting) -> int:
    """How often a step gathers each weight."""
    return 1 if setting.layout.pipeline > 1 else 2 * setting.batch.microbatches


def _reductions(setting: Setting) -> int:
    """How often a step reduces each gradient."""
    each = setting.layout.zero == 3 and setting.layout.pipeline == 1
    return setting.batch.microbatches if each or setting.each_microbatch else 1


def _turns(times: int) -> str:
    return "" if times == 1 else f"{times} × "
