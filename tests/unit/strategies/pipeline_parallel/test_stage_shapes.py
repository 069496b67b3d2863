import pytest
import torch

from shardyard.strategies.layout import Layout
from shardyard.strategies.pipeline_parallel.stage_shapes import FoundShapes, stage_shapes


def test_context_divides_the_positions_and_sequence_parallelism_the_hidden_state() -> None:
    layout = Layout(pipeline=2, tensor=2, context=2)
    shapes = stage_shapes(layout, layout.batch(8), seq_len=64, dim=16, vocab=100, compute=torch.bfloat16)
    assert shapes is not None
    micro = layout.batch(8).micro_batch
    assert shapes.inputs(0).shape == (micro, 32) and shapes.inputs(0).dtype == torch.int64
    assert shapes.inputs(1).shape == shapes.outputs(0, 2).shape == (micro, 16, 16)
    assert shapes.outputs(1, 2).shape == (micro, 32, 100)
    assert shapes.inputs(1).requires_grad and shapes.inputs(1).dtype == torch.bfloat16


def test_without_sequence_parallelism_every_rank_has_the_whole_hidden_state() -> None:
    layout = Layout(pipeline=2, tensor=2, sequence=False)
    shapes = stage_shapes(layout, layout.batch(8), seq_len=64, dim=16, vocab=100, compute=torch.float32)
    assert shapes is not None
    assert shapes.passed_on[0][1:] == (64, 16)


def test_a_last_stage_without_a_head_returns_the_hidden_state() -> None:
    layout = Layout(pipeline=2, tensor=2)
    shapes = stage_shapes(layout, layout.batch(8), seq_len=64, dim=16, vocab=None, compute=torch.float32)
    assert shapes is not None
    assert shapes.outputs(1, 2).shape == shapes.outputs(0, 2).shape


def test_a_grid_divides_sequences_and_columns() -> None:
    layout = Layout.model_validate({"pipeline": 2, "micro_batch": 4, "tensor": {"mode": "2d", "shape": [2, 2]}})
    shapes = stage_shapes(layout, layout.batch(8), seq_len=64, dim=16, vocab=100, compute=torch.float32)
    assert shapes is not None
    assert shapes.inputs(0).shape == (2, 64)
    assert shapes.outputs(0, 2).shape == (2, 64, 8)
    assert shapes.outputs(1, 2).shape == (2, 64, 100)
    assert stage_shapes(layout, layout.batch(8), seq_len=64, dim=17, vocab=100, compute=torch.float32) is None


@pytest.mark.parametrize("mode", ["2.5d", "3d"])
def test_a_depth_divides_the_sequences_further(mode: str) -> None:
    layout = Layout.model_validate({"pipeline": 2, "micro_batch": 4, "tensor": {"mode": mode, "shape": [2, 2, 2]}})
    shapes = stage_shapes(layout, layout.batch(8), seq_len=64, dim=16, vocab=100, compute=torch.float32)
    assert shapes is not None
    assert shapes.inputs(0).shape == (1, 64)
    assert shapes.outputs(0, 2).shape == (1, 64, 8)


def test_stages_with_fields_have_what_was_found_and_their_ends_send_nothing() -> None:
    mask = ((2, 5), torch.bool)
    encoder, decoder = ((2, 7, 8), torch.float64), ((2, 5, 8), torch.float64)
    shapes = FoundShapes({0: (encoder,), 1: (decoder, encoder, mask)})
    assert shapes.inputs(0) == () and len(shapes.outputs(2, 3)) == 1
    (passed,) = shapes.inputs(1)
    assert passed.shape == (2, 7, 8) and passed.is_meta
    found = shapes.outputs(1, 3)
    assert [(tuple(one.shape), one.dtype) for one in found] == [decoder, encoder, mask]
    assert [one.requires_grad for one in found] == [True, True, False]
    assert [one.shape for one in shapes.inputs(2)] == [one.shape for one in found]
