import pytest

from shardyard.service.errors import InvalidCursor
from shardyard.service.schemas.cursor import Cursor


def test_a_cursor_survives_its_text() -> None:
    assert Cursor.parse(str(Cursor(1, 22, 333))) == Cursor(1, 22, 333)
    assert Cursor.parse(str(Cursor(1, 22, 333, 4444))) == Cursor(1, 22, 333, 4444)
    assert str(Cursor(1, 22, 333)) == "1.22.333"  # as clients know it who hear nothing of ranks


@pytest.mark.parametrize(
    "text", ["", "1", "1.2", "1.2.3.4.5", "1.2.3.", "a.b.c", "-1.0.0", "1.2.", "١.0.0", f"{10**20}.0.0", "1.2.3\n"]
)
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidCursor):
        Cursor.parse(text)
