"""What rank 0 printed is read back, and a rank that fails is quoted."""

import pytest

from shardyard import __version__
from shardyard.workers.program.captured_run import RanksFailed, lines_of_rank_0


def test_the_cause_is_the_last_line_that_a_rank_printed_itself() -> None:
    printed = "[rank 1] [rank1]: ValueError: no\n[rank 1] shardyard: this rank exited with status 1"
    assert RanksFailed(1, printed).cause == "ValueError: no"
    assert RanksFailed(137, "shardyard: this rank was ended by SIGKILL").cause == "it printed nothing"


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_module_that_fails_is_quoted(ranks: int) -> None:
    with pytest.raises(RanksFailed, match=r"No module named shardyard\.none") as failed:
        list(lines_of_rank_0("none", [], ranks))
    assert failed.value.status == 1 and "none" in failed.value.cause


@pytest.mark.parametrize("ranks", [1, 2])
def test_only_rank_0_is_read(ranks: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert list(lines_of_rank_0("api.cli", ["--version"], ranks)) == [__version__]
    assert capfd.readouterr().out == ""
