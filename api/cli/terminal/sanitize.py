"""Removes terminal control characters from other users' text (log lines, messages). Tabs stay, newlines on request."""

#: Controls, line breaks of Unicode, and characters that change the direction of text.
_STEERING = dict.fromkeys(
    (*range(9), *range(10, 32), *range(127, 160), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
)
_BUT_NEWLINES = {code: None for code in _STEERING if code != ord("\n")}


def line(text: str) -> str:
    """The text as one line."""
    return text.translate(_STEERING)


def lines(text: str) -> str:
    """The text with its lines."""
    return text.translate(_BUT_NEWLINES)
