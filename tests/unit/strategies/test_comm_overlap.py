"""A bucket has a size, however small it is given, and chunks are refused where nothing sends in chunks."""

import pytest
from pydantic import ValidationError

from shardyard.strategies.comm_overlap import Overlap, check_overlap
from shardyard.strategies.layout import Layout, Refusal


@pytest.mark.parametrize(("given", "size"), [(8, 8 << 20), (0.5, 1 << 19), (1e-9, 1)])
def test_a_bucket_has_at_least_a_byte(given: float, size: int) -> None:
    assert Overlap(bucket_mb=given).bucket_bytes == size


@pytest.mark.parametrize("given", [0, 65, 1.5])
def test_a_number_of_chunks_is_a_small_whole_number(given: float) -> None:
    with pytest.raises(ValidationError, match="tensor_chunks"):
        Overlap(tensor_chunks=given)  # type: ignore[arg-type]


def test_a_grid_has_no_chunks() -> None:
    grid = Layout.model_validate({"tensor": {"mode": "2d", "shape": [2, 2]}})
    check_overlap(grid, Overlap())
    with pytest.raises(Refusal, match="does not divide positions into chunks") as refused:
        check_overlap(grid, Overlap(tensor_chunks=2))
    assert refused.value.field == "overlap.tensor_chunks"


@pytest.mark.parametrize("layout", [{}, {"tensor": 2}, {"tensor": 2, "sequence": False}], ids=str)
def test_without_a_shape_there_may_be_chunks(layout: dict[str, int]) -> None:
    check_overlap(Layout.model_validate(layout), Overlap(tensor_chunks=4))
