"""Replaces the values of secrets in what a rank prints and reports."""

import json
from collections.abc import Iterable
from typing import Final

from ..messages.secret import SHORTEST

#: What stands in place of a secret.
MASK: Final = b"***"


class SecretMask:
    """Hides values, and each line of those that have several, since a log is a sequence of lines."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        texts = {text for value in values for text in (value, *(line.strip() for line in value.splitlines()))}
        self._hidden = sorted((text.encode() for text in texts if len(text) >= SHORTEST), key=len, reverse=True)
        #: At most this many bytes at the end of a text may be the beginning of a secret.
        self.overlap = max(map(len, self._hidden), default=1) - 1

    def hide(self, data: bytes) -> bytes:
        for text in self._hidden:  # many times faster than one pattern of all
            data = data.replace(text, MASK)
        return data

    def hide_in_json(self, data: bytes) -> bytes:
        """The same in JSON (UTF-8), whose strings have some characters escaped."""
        for text in self._hidden:
            data = data.replace(json.dumps(text.decode(), ensure_ascii=False)[1:-1].encode(), MASK)
        return data

    def hide_in(self, text: str) -> str:
        return self.hide(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")
