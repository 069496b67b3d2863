"""Philox-4x32-10 (Salmon et al., SC 2011) on torch tensors: 128 random bits are a function of a key and a counter, with no state.

Every operation is on integers, so all devices give the same bits. A product of two 32-bit words fills 64 bits: int64 has its lower
half as it is, and its upper half after a shift and a mask.
"""

from typing import Final

from torch import Tensor

#: Four 32-bit words, each an int64 tensor of values below 2³².
Words = tuple[Tensor, Tensor, Tensor, Tensor]

_ROUNDS: Final = 10
_FACTORS: Final = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS: Final = (0x9E3779B9, 0xBB67AE85)
_WORD: Final = 0xFFFFFFFF


def philox(counter: Words, key: tuple[int, int]) -> Words:
    """The four random words of each counter. The counter's tensors may have different shapes, which broadcast.

    Above the 32nd, bits of the second and the fourth returned word have no meaning: mask them, or convert to int32.
    """
    first, second, third, fourth = counter
    for turn in range(_ROUNDS):
        keys = [(word + turn * step) & _WORD for word, step in zip(key, _KEY_STEPS, strict=True)]
        left, right = first * _FACTORS[0], third * _FACTORS[1]
        first, second = _mixed(right, second, keys[0]), right
        third, fourth = _mixed(left, fourth, keys[1]), left
    return first, second, third, fourth


def _mixed(product: Tensor, word: Tensor, key: int) -> Tensor:
    """The upper half of `product`, with `word` and `key` added without carry."""
    upper = (product >> 32).bitwise_xor(word)
    return upper.bitwise_xor_(key).bitwise_and_(_WORD)
