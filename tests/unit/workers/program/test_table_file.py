"""Tables of programs become CSV, which the usual readers read."""

import csv
import io
from typing import Any

import pandas
import pytest

from shardyard.workers.program import table_file
from shardyard.workers.program.table_file import content


def test_rows_are_read_as_they_were_given() -> None:
    rows = [["a, b", 1, 0.5], ['"quoted"\nline', None, float("nan")]]
    found = list(csv.reader(io.StringIO(content(["text", "n", "x"], rows).decode(), newline="")))
    assert found == [["text", "n", "x"], ["a, b", "1", "0.5"], ['"quoted"\nline', "", "nan"]]
    assert content(["a"], iter(())) == b"a\r\n"


def test_a_dataframe_is_a_table() -> None:
    frame = pandas.DataFrame({"text": ["a", "b"], "loss": [0.5, 0.25]})
    assert pandas.read_csv(io.BytesIO(content(frame))).equals(frame)


@pytest.mark.parametrize(
    ("columns", "rows"), [("ab", [[1, 2]]), ([], []), (["a"], [[1, 2]]), (["a"], 3), ({"a": 1}, None), (["a"] * 1001, []),
     (["a", "b"], [{"a": 1, "b": 2}]), (["a", "b"], ["xy"])]
)  # fmt: skip
def test_what_is_no_table_is_refused(columns: Any, rows: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"table|row|DataFrame"):
        content(columns, rows)


def test_a_table_is_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_file, "MOST_ROWS", 10)
    assert content(["a"], [[1]] * 10).count(b"\n") == 11
    with pytest.raises(ValueError, match="at most 10 rows"):
        content(["a"], [[1]] * 11)
    monkeypatch.setattr(table_file, "MOST_BYTES", 100)
    with pytest.raises(ValueError, match="log a part"):
        content(["a"], [["x" * 60]] * 3)
