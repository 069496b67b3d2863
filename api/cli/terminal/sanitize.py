"""Other people's text (log lines, messages) on a terminal: without what would steer it. Tabs stay, newlines where they are wanted."""

#: Controls, line breaks of Unicode, and what changes the direction of text.
_STEERING = dict.fromkeys(
    (*range(9), *range(10, 32), *range(127, 160), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
)
_BUT_NEWLINES = {code: None for code in _STEERING if code != ord("\n")}


def line(text: str) -> str:
    """As one line."""
    return text.translate(_STEERING)


def lines(text: str) -> str:
    """As the lines that it has."""
    return text.translate(_BUT_NEWLINES)
