"""Ranges of bytes in requests (RFC 9110, 14): one range of a download. Several, and other units, are answered with the whole file."""

import re
from typing import Final

_ONE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


class Unsatisfiable(Exception):
    """The range begins after the end of the file."""


def requested_range(header: str | None, if_range: str | None, etag: str, size: int) -> tuple[int, int] | None:
    """First byte, and the one after the last, that a request asks for; None: all of them. Raises Unsatisfiable.

    `if_range`: the file's tag as the client knows it. If the file is another one now, the client gets the whole one.
    """
    found = _ONE.fullmatch((header or "").replace(" ", ""))
    if found is None or found[0] == "bytes=-" or (if_range is not None and if_range != etag):
        return None
    first, last = found.groups()
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), size if not last else min(size, int(last) + 1)
        if last and int(last) < int(first):
            return None
    if start >= size or start >= end:
        raise Unsatisfiable
    return start, end
