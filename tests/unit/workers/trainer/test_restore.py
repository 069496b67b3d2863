"""The log says that a checkpoint was computed in another dtype than the run that continues from it."""

import pytest

from shardyard.workers.trainer.restore import say_precision


@pytest.mark.parametrize(
    ("before", "said"),
    [("fp32", "The checkpoint was computed in fp32, and this run continues in bf16.\n"), ("bf16", ""), (None, "")],
)
def test_another_precision_is_one_line(before: str | None, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A checkpoint of an older version does not record its own."""
    say_precision(before, "bf16")
    assert capsys.readouterr().err == said
