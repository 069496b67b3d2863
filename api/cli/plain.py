"""Other people's text (log lines, messages) on a terminal: without what would steer it. Tabs stay, newlines where they are wanted."""

_STEERING = dict.fromkeys((*range(9), *range(10, 32), 127, *range(128, 160)))
_BUT_NEWLINES = {code: None for code in _STEERING if code != ord("\n")}


def line(text: str) -> str:
    """As one line."""
    return text.translate(_STEERING)


def lines(text: str) -> str:
    """As the lines that it has."""
    return text.translate(_BUT_NEWLINES)
