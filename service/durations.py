"""Durations as users write them: `90s`, `30m`, `8h`, `2d`, `1h30m`."""

import re
from typing import Final

PATTERN: Final = r"^(\d+(\.\d+)?[smhd])+$"
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(text: str) -> float | None:
    """Seconds of a duration; None for other text."""
    if re.fullmatch(PATTERN, text, re.ASCII) is None:
        return None
    return sum(float(number) * _UNIT_S[unit] for number, unit in re.findall(r"([\d.]+)([smhd])", text))
