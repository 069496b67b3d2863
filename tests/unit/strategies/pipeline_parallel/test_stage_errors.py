"""A stage's own error passes through torch's wrapper; a stage that passes on other shapes is refused."""

import pytest
import torch

from shardyard.strategies.layout import Refusal
from shardyard.strategies.pipeline_parallel.stage_errors import check_passed_on, unwrapped

KNOWN = (((2, 7, 8), torch.float32), ((2, 7), torch.int64))


def wrapped(error: Exception, message: str) -> None:
    try:
        try:
            raise LookupError("first")
        except LookupError as first:
            raise error from first
    except Exception as own:
        raise RuntimeError(message) from own


@pytest.mark.parametrize("message", ["[Stage 1] failed to run forward: args", "Failed to run stage backward input:"])
def test_the_error_of_a_stage_is_raised_with_its_own_cause(message: str) -> None:
    with pytest.raises(ValueError, match="no more") as raised:
        unwrapped(lambda: wrapped(ValueError("no more"), message))
    assert isinstance(raised.value.__cause__, LookupError)


def test_other_errors_and_results_are_what_they_were() -> None:
    with pytest.raises(RuntimeError, match="of the user") as raised:
        unwrapped(lambda: wrapped(ValueError("no more"), "of the user"))
    assert isinstance(raised.value.__cause__, ValueError)
    with pytest.raises(KeyError, match="other"):
        unwrapped(lambda: {}["other"])
    assert unwrapped(lambda: 3) == 3


def test_other_shapes_dtypes_or_numbers_of_tensors_are_refused() -> None:
    known = [torch.zeros(shape, dtype=dtype) for shape, dtype in KNOWN]
    check_passed_on(1, known, KNOWN)
    for other in ([known[0][:1], known[1]], [known[0].half(), known[1]], known[:1], []):
        with pytest.raises(Refusal, match=r"stage 1 passes on .*, and passed on float32 \[2, 7, 8\], int64") as refused:
            check_passed_on(1, other, KNOWN)
        assert refused.value.field == "data.source" and refused.value.remedy
