# Generated from api/client/_async/connection.py; change that file, then run: make sync-client
"""The connections of `Client`. Each process has its own: on one socket a forked process would read the answers to its parent."""

import os
from functools import partial

from ..token import BearerToken
from ..transport import check_url, find_url, made
from .runtime import HttpClient


class Connection:
    """The HTTP client of a process, for the address `url`."""

    def __init__(self, url: str | None, token: str | None, timeout_s: float) -> None:
        """Raises `ApiError` for an address, a token, a proxy and certificates that cannot be used."""
        self._given = url
        self.url = find_url(url)
        check_url(self.url)
        auth = BearerToken(token, named=bool(url))
        self._make = partial(made, HttpClient, self.url, url, timeout_s, auth=auth)
        # By process. A parent's is not closed: the poll object of an event loop is one for both.
        self._opened = {os.getpid(): self._make()}

    @property
    def _http(self) -> HttpClient:
        process = os.getpid()
        if process not in self._opened:
            self._opened[process] = self._make()
        return self._opened[process]

    def close(self) -> None:
        """Close the connections of this process."""
        if (http := self._opened.get(os.getpid())) is not None:
            http.close()
