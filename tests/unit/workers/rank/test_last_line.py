"""Which line of standard error is quoted with an exit status."""

import pytest

from shardyard.workers.rank.last_line import MOST, LastLine


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([], ""),
        ([b"first", b"train.py: error: no such column\r", b"=" * 60, b"", b"  "], "train.py: error: no such column"),
        ([b"last", b"shardyard: 3 values were not logged"], "last"),
        ([b" + alpha==1.0", b"shardyard: the program starts"], ""),
        ([b" + alpha==1.0", b"shardyard: the program starts", b"sh: 1: x: not found"], "sh: 1: x: not found"),
        ([b"caf\xc3\xa9 \xff\0"], "caf\u00e9 \ufffd\ufffd"),
        ([b"x" * 5000], "x" * MOST + "\u2026"),
    ],
)
def test_the_last_line_that_the_program_itself_has_written(lines: list[bytes], text: str) -> None:
    seen = LastLine()
    for line in lines:
        seen.see([line])
    assert seen.text == text
