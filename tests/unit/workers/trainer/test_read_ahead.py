"""Batches that are read ahead: one at a time, in order, on a thread that ends, with errors where the batch is needed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from harness.patience import PATIENCE_S

from shardyard.workers.trainer.loop import Loop
from shardyard.workers.trainer.read_ahead import Pair, ReadAhead

CPU = torch.device("cpu")


class Corpus:
    """Notes which samples are read, and on which thread. `broken` ones raise."""

    def __init__(self, broken: int | None = None) -> None:
        self.read: list[tuple[int, bool]] = []
        self.broken = broken

    def __call__(self, first: int) -> Pair:
        self.read.append((first, threading.current_thread() is threading.main_thread()))
        if first == self.broken:
            raise OSError(f"no sample {first}")
        return torch.tensor([[first]]), torch.tensor([[first + 1]])


@contextmanager
def reading(corpus: Corpus) -> Iterator[ReadAhead]:
    ahead = ReadAhead(corpus, CPU)
    try:
        yield ahead
    finally:
        ahead.close()


def test_the_next_batch_is_read_on_a_thread_and_only_once() -> None:
    corpus = Corpus()
    with reading(corpus) as ahead:
        for first in (0, 8, 16):
            inputs, targets = ahead.take(first)
            assert (inputs.item(), targets.item()) == (first, first + 1)
            ahead.begin(first + 8)
            ahead.begin(first + 8)
        ahead.take(24)
    assert corpus.read == [(0, True), (8, False), (16, False), (24, False)]


def test_another_batch_than_the_one_read_ahead_is_read_when_it_is_needed() -> None:
    """As when a failed step runs once more, and when a training continues elsewhere."""
    corpus = Corpus()
    with reading(corpus) as ahead:
        ahead.begin(8)
        assert ahead.take(0)[0].item() == 0
        assert ahead.take(8)[0].item() == 8
        ahead.begin(16)
        ahead.begin(64)
        assert ahead.take(64)[0].item() == 64
    assert (0, True) in corpus.read


def test_an_error_is_raised_by_the_step_that_needs_the_batch() -> None:
    with reading(Corpus(broken=8)) as ahead:
        ahead.begin(8)
        assert ahead.take(0)[0].item() == 0
        with pytest.raises(OSError, match="no sample 8"):
            ahead.take(8)
        ahead.begin(16)
        assert ahead.take(16)[0].item() == 16


def test_an_error_of_a_step_is_raised_while_the_next_batch_is_still_read() -> None:
    """A source of the user's own may need minutes for a batch, after which the rank would count as hung."""
    there, go, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(first: int) -> Pair:
        there.set()
        go.wait(PATIENCE_S)
        ended.set()
        return torch.tensor([first]), torch.tensor([first])

    ahead = ReadAhead(slow, CPU)

    class Failing(Loop):
        def __init__(self) -> None:
            self.parts: Any = SimpleNamespace(mesh=SimpleNamespace(device=CPU))
            self.batches: Any = ahead
            self.callbacks: Any = SimpleNamespace(start=lambda: None, close=lambda: None)
            self._reporter: Any = SimpleNamespace(plan=lambda: None)
            self._instruments: Any = SimpleNamespace(installed=nullcontext)

        def _run(self) -> None:
            ahead.begin(8)
            assert there.wait(PATIENCE_S)
            raise ValueError("out of memory")

    try:
        with pytest.raises(ValueError, match="out of memory"):
            Failing().run()
        assert not ended.is_set()
    finally:
        go.set()


def test_the_thread_starts_with_the_first_batch_and_ends_with_close() -> None:
    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("read-ahead")]

    ahead = ReadAhead(Corpus(), CPU)
    ahead.take(0)
    assert not threads()
    ahead.begin(8)
    assert len(threads()) == 1
    ahead.close()
    assert not threads()
    ahead.close()
