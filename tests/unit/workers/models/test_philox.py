"""Philox-4x32-10 gives the published words, and those of its definition in plain integers."""

import pytest
import torch
from harness.plain_normal import WORD
from harness.plain_normal import philox as plain

from shardyard.workers.models.philox import philox

#: Counter, key and words as in `kat_vectors` of Random123 1.14.
PUBLISHED = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


def drawn(counters: list[list[int]], key: list[int]) -> list[list[int]]:
    first, second, third, fourth = (torch.tensor(column) for column in zip(*counters, strict=True))
    found = philox((first, second, third, fourth), (key[0], key[1]))
    return (torch.stack(found, dim=1) & WORD).tolist()


@pytest.mark.parametrize(("counter", "key", "expected"), PUBLISHED)
def test_gives_the_published_words(counter: str, key: str, expected: str) -> None:
    assert drawn([words(counter)] * 3, words(key)) == [words(expected)] * 3


def test_equals_its_definition_for_many_counters() -> None:
    generator = torch.Generator().manual_seed(0)
    counters = torch.randint(0, 2**32, (501, 4), generator=generator).tolist()
    key = [0xDEADBEEF, 0x12345678]
    assert drawn(counters, key) == [plain(counter, key) for counter in counters]


def test_words_of_a_counter_broadcast() -> None:
    rows, columns, none = torch.arange(3)[:, None], torch.arange(5)[None, :], torch.zeros((), dtype=torch.int64)
    found = philox((columns, none, rows, none), (1, 2))
    assert [tuple(word.shape) for word in found] == [(3, 5)] * 4
    assert [int(word[2, 4]) & WORD for word in found] == plain([4, 0, 2, 0], [1, 2])
