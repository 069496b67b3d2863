import pytest

from shardyard.service.errors import InvalidCursor
from shardyard.service.records import Cursor


def test_a_cursor_survives_its_text() -> None:
    assert Cursor.parse(str(Cursor(1, 22, 333))) == Cursor(1, 22, 333)


@pytest.mark.parametrize(
    "text", ["", "1", "1.2", "1.2.3.4", "a.b.c", "-1.0.0", "1.2.", "١.0.0", f"{10**20}.0.0", "1.2.3\n"]
)
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidCursor):
        Cursor.parse(text)
