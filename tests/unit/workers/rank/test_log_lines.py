"""Lines of a log: ends of lines, progress bars, and lines that are too long."""

import pytest

from shardyard.workers.rank import log_lines
from shardyard.workers.rank.log_lines import MAX_LINE, LogLines, cut
from shardyard.workers.rank.secret_mask import SecretMask

MASK = SecretMask()


def taken(*parts: bytes) -> list[list[bytes]]:
    """The lines after each part, and at the end."""
    lines = LogLines()
    return [*(lines.take(part, MASK) for part in parts), lines.end()]


def test_a_progress_bar_is_seen_as_it_moves_in_its_newest_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "BAR_S", 0.0)
    found = taken(b"\r 1%", b"\r 2%", b"\r 3%\r 4%\r 5%", b"\r99%\r100%\nnext", b"\n")
    assert found == [[], [b" 1%"], [b" 4%"], [b"100%"], [b"next"], []]


def test_a_line_that_is_written_over_a_bar_replaces_it() -> None:
    """As by `tqdm.write`."""
    assert taken(b"\r10%\r   \r", b"saved\n", b"\r20%") == [[], [b"saved"], [], [b"20%"]]


def test_bars_that_follow_quickly_are_one_line() -> None:
    assert taken(b" 1%\r", b" 2%\r", b" 3%\r 4%", b"\r 5%") == [[b" 1%"], [], [], [], [b" 5%"]]
    assert taken(b" 1%\r", b" 2%\r", b"\nend\n") == [[b" 1%"], [], [b" 2%", b"end"], []]


def test_an_end_of_a_line_that_comes_in_two_parts_is_one_end() -> None:
    assert taken(b"a\r", b"\nb\r\n\n", b"\r", b"\n") == [[b"a"], [b"b", b""], [], [b""], []]


def test_a_long_line_is_cut_between_characters() -> None:
    text = ("x" + "\u20ac" * MAX_LINE).encode()
    lines = LogLines()
    found = [line for at in range(0, len(text), 1000) for line in lines.take(text[at : at + 1000], MASK)]
    found += lines.end()
    assert len(found) > 2 and b"".join(found) == text
    assert "".join(line.decode() for line in found) == text.decode()
    assert "".join(part.decode() for part in cut(text)) == text.decode()
    assert max(map(len, cut(text))) <= MAX_LINE


@pytest.mark.parametrize("line", [b"", b"a", b"\x80" * 3 * MAX_LINE, b"\xe2" * 3 * MAX_LINE])
def test_what_is_no_text_is_cut_all_the_same(line: bytes) -> None:
    parts = cut(line)
    assert b"".join(parts) == line and max(map(len, parts)) <= MAX_LINE
