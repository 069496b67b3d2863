"""Replaces the values of secrets in what a rank prints and reports."""

import json
import os
from collections.abc import Iterable, Mapping
from typing import Final

from ..messages.secret import SHORTEST, names_secret

#: What stands in place of a secret.
MASK: Final = b"***"


class SecretMask:
    """Hides values, and each line of those that have several, since a log is a sequence of lines."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        texts = {text for value in values for text in (value, *(line.strip() for line in value.splitlines()))}
        self._hidden = sorted((_bytes(text) for text in texts if len(text) >= SHORTEST), key=len, reverse=True)
        #: At most this many bytes at the end of a text may be the beginning of a secret.
        self.overlap = max(map(len, self._hidden), default=1) - 1

    def hide(self, data: bytes) -> bytes:
        for text in self._hidden:  # many times faster than one pattern of all
            data = data.replace(text, MASK)
        return data

    def hide_in_json(self, data: bytes) -> bytes:
        """The same in JSON (UTF-8), whose strings have some characters escaped."""
        for text in self._hidden:
            escaped = json.dumps(text.decode(errors="surrogateescape"), ensure_ascii=False)[1:-1]
            data = data.replace(_bytes(escaped), MASK)
        return data

    def hide_in(self, text: str) -> str:
        return self.hide(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")  # a variable may have bytes that are no UTF-8


def secrets_of(environment: Mapping[str, str]) -> list[str]:
    """Values that the names of their variables call secret. Text that is the path of a file is none: it only says where one is."""
    return [value for name, value in environment.items() if names_secret(name) and not os.path.exists(value)]  # noqa: PTH110
