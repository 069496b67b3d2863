"""Fields are split and converted like one tensor, all rows together."""

import torch

from shardyard.strategies.fields import Fields


def fields() -> Fields:
    return Fields({"x": torch.arange(12.0).reshape(6, 2), "label": torch.arange(6)})


def test_micro_batches_have_the_same_rows_of_every_tensor() -> None:
    parts = fields().chunk(3)
    assert [part["label"].tolist() for part in parts] == [[0, 1], [2, 3], [4, 5]]
    assert [part["x"][:, 0].tolist() for part in parts] == [[0, 4 / 2], [4, 6], [8, 10]]
    assert isinstance(parts[0], dict)


def test_only_floats_change_their_dtype() -> None:
    found = fields().floats_as(torch.bfloat16)
    assert {name: tensor.dtype for name, tensor in found.items()} == {"x": torch.bfloat16, "label": torch.int64}


def test_moves_every_tensor() -> None:
    found = fields().to(torch.device("meta"))
    assert {tensor.device.type for tensor in found.values()} == {"meta"}
