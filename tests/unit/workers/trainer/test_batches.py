from types import SimpleNamespace
from typing import Any

import pytest
import torch

from shardyard.strategies.batch import Batch
from shardyard.strategies.documents import IGNORED, Packed, starts_of
from shardyard.strategies.layout import Layout
from shardyard.strategies.mesh import TENSOR_DEPTH, TENSOR_ROW
from shardyard.workers.data.position import Position, SampleOrder
from shardyard.workers.trainer.batches import Batches, _step_seed, rows_of


def parts(data: int, rank: int, layout: Layout = Layout(), row: int = 0, depth: int = 0, **places: int) -> Any:  # noqa: B008  (it is frozen)
    """What a rank's batches are made of: 3 micro-batches on each of `data` ranks, of 2 sequences or one per row."""
    places |= {"data": rank, TENSOR_ROW: row, TENSOR_DEPTH: depth}
    mesh = SimpleNamespace(
        index=lambda axis: places.get(axis, 0), device=torch.device("cpu"), serves=rank >= data, layout=layout
    )
    size = max(2, layout.division.rows)
    batch = Batch(3 * size * data, data, 3, size)
    return SimpleNamespace(batch=batch, mesh=mesh, spec=SimpleNamespace(seed=7, steps=3))


class Corpus:
    """Batches of one number, the first sample. Notes which are read."""

    end: int | None = None

    def __init__(self) -> None:
        self.read: list[int] = []

    def batch(self, first: int, rows: Any) -> tuple[torch.Tensor, torch.Tensor]:
        self.read.append(first)
        return torch.full((len(rows), 4), first), torch.full((len(rows), 4), first + 1)


def reading(ahead: bool, position: Position) -> tuple[Batches, Corpus]:
    corpus, built = Corpus(), parts(1, 0)
    built.tokens = corpus
    return Batches(built, position, ahead=ahead), corpus


def test_ranks_share_each_micro_batch_of_the_global_batch() -> None:
    assert [rows_of(parts(2, rank)).tolist() for rank in (0, 1)] == [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11]]
    assert rows_of(parts(1, 0)).tolist() == list(range(6))
    assert rows_of(parts(2, 2)).tolist() == [], "a parameter server reads nothing"


def test_the_rows_of_a_grid_share_each_micro_batch() -> None:
    grid = Layout.model_validate({"data": 2, "tensor": {"mode": "2d", "shape": [2, 2]}})
    assert [rows_of(parts(2, 1, grid, row)).tolist() for row in (0, 1)] == [[2, 6, 10], [3, 7, 11]]


def test_the_rows_of_several_grids_share_each_micro_batch() -> None:
    deep = Layout.model_validate({"data": 2, "tensor": {"mode": "2.5d", "shape": [2, 2, 2]}})
    places = [(0, 0), (0, 1), (1, 0), (1, 1)]
    found = [rows_of(parts(2, 1, deep, row, depth)).tolist() for depth, row in places]
    assert found == [[4, 12, 20], [5, 13, 21], [6, 14, 22], [7, 15, 23]]


@pytest.mark.parametrize("step", [1, 2, 10_000])
def test_a_step_draws_what_its_seed_says(step: int) -> None:
    torch.manual_seed(_step_seed(7, step, 0))
    drawn = torch.rand(8)
    batches = Batches(parts(2, 1), SimpleNamespace())  # type: ignore[arg-type]
    for _ in range(2):
        batches.seed(step)
        assert torch.equal(torch.rand(8), drawn)
    batches.seed(step + 1)
    assert not torch.equal(torch.rand(8), drawn)
    assert _step_seed(7, step, 0) != _step_seed(7, step, 1)


def test_ranks_of_a_pipeline_draw_their_own_numbers_and_tensor_ranks_the_same() -> None:
    """Else the masks of dropout would be the same at several depths."""
    drawn = {}
    for places in ({}, {"tensor": 1}, {"pipeline": 1}, {"pipeline": 2}):
        Batches(parts(2, 1, **places), SimpleNamespace()).seed(3)  # type: ignore[arg-type]
        drawn[str(places)] = tuple(torch.rand(4).tolist())
    assert drawn["{}"] == drawn["{'tensor': 1}"] and len(set(drawn.values())) == 3


ORDER = SampleOrder("corpus", "bytes", 4, 0.05, 7)


@pytest.mark.parametrize("ahead", [False, True])
def test_reads_each_steps_samples_once_and_nothing_beyond_the_last_step(ahead: bool) -> None:
    batches, corpus = reading(ahead, Position(ORDER, 6))
    assert [batches.training(step)[0][0, 0].item() for step in (1, 2, 3)] == [0, 6, 12]
    batches.close()
    assert corpus.read == [0, 6, 12]


def test_a_batch_that_was_read_ahead_is_not_consumed() -> None:
    """A training that stops after step 1 and continues elsewhere, with another global batch, reads step 2's first sample there."""
    first = Position(ORDER, 6)
    batches, _ = reading(True, first)
    batches.training(1)
    batches.close()
    saved = first.state(1)
    assert saved["samples"] == 6
    second = Position(ORDER, 4)
    second.restore(1, saved)
    batches, corpus = reading(True, second)
    assert [batches.training(step)[0][0, 0].item() for step in (2, 3)] == [6, 10]
    batches.close()
    assert corpus.read == [6, 10]


def test_a_position_that_moves_discards_what_was_read_ahead() -> None:
    """As when a gang goes back to its newest snapshot."""
    position = Position(ORDER, 6)
    batches, _ = reading(True, position)
    batches.training(2)
    position.restore(0, {**position.state(0), "samples": 60})
    assert batches.training(1)[0][0, 0].item() == 60
    assert batches.training(2)[0][0, 0].item() == 66
    batches.close()


@pytest.mark.parametrize("ahead", [False, True])
def test_the_batch_after_a_steps_is_the_next_steps_and_is_read_once(ahead: bool) -> None:
    batches, corpus = reading(ahead, Position(ORDER, 6))
    expected = None
    for step in (1, 2, 3):
        given = batches.training(step)
        assert expected is None or given[0] is expected[0]
        following = batches.following(step)
        assert (None if following is None else following[0][0, 0].item()) == {1: 6, 2: 12}.get(step)
        expected = following
    batches.close()
    assert corpus.read == [0, 6, 12]


@pytest.mark.parametrize("ahead", [False, True])
def test_batches_further_ahead_are_read_once_too(ahead: bool) -> None:
    batches, corpus = reading(ahead, Position(ORDER, 6))
    first = batches.training(1)
    following = [batches.following(1, number) for number in (1, 2, 3)]
    assert following[-1] is None and first[0][0, 0].item() == 0
    assert [batches.training(step) for step in (2, 3)] == following[:2]
    batches.close()
    assert corpus.read == [0, 6, 12]


def test_a_position_that_moves_discards_the_batch_after_it() -> None:
    position = Position(ORDER, 6)
    batches, _ = reading(False, position)
    batches.training(1)
    batches.following(1)
    position.restore(0, {**position.state(0), "samples": 60})
    assert batches.training(2)[0][0, 0].item() == 66


def test_packed_rows_show_their_documents_on_every_context_rank() -> None:
    layout = Layout(context=2)
    tokens, end = torch.arange(8 * 6).view(6, 8) % 5, 3
    found = []
    for rank in (0, 1):
        built = parts(1, 0, layout)
        built.mesh.index = lambda axis, rank=rank: rank if axis == "context" else 0
        built.tokens = SimpleNamespace(end=end, batch=lambda first, rows: (tokens, tokens + 1))
        found.append(Batches(built, Position(ORDER, 6)).training(1))
    for inputs, targets in found:
        assert isinstance(inputs, Packed)
        assert inputs.tokens.shape == targets.shape == (6, 4)
        assert torch.equal(inputs.starts, starts_of(tokens, end))
        assert torch.equal(targets == IGNORED, inputs.tokens == end)
        assert torch.equal(targets[targets != IGNORED], inputs.tokens[targets != IGNORED] + 1)
